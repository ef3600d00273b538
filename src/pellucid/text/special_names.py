"""Tokens known by name, whatever type a file gives them."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

# Tokens that end an answer wherever they are control tokens, as models spell them.
END_NAMES: Final = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> "
    "<eos> <turn|> <|tool_response> <\uff5cend\u2581of\u2581sentence\uff5c> [e~["
).split()
# ... unless these are there too: then the name means something else (Harmony, Gemma 4).
_END_UNLESS: Final = {
    "<|end|>": (
        {"<|return|>", "<|call|>"},
        {"<|call|>", "<|flush|>"},
        {"<|calls|>", "<|flush|>"},
        {"<|return|>", "<|calls|>"},
    ),
    "</s>": ({"<|tool_response>"},),
}
# Control tokens by name, whatever type the file gives them: the fill-in-the-middle marks.
CONTROL_NAMES: Final = (
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <\uff5cfim\u2581begin\uff5c> <PRE> \u2581<PRE> "
    "<|code_prefix|> <|fim_suffix|> <fim-suffix> <fim_suffix> <\uff5cfim\u2581hole\uff5c> <SUF> "
    "\u2581<SUF> <|code_suffix|> <|fim_middle|> <fim-middle> <fim_middle> "
    "<\uff5cfim\u2581end\uff5c> <MID> \u2581<MID> <|code_middle|> <|fim_pad|> <fim-pad> <fim_pad> "
    "<|fim_repo|> <|repo_name|> <fim-repo> <reponame> <|file_sep|>"
).split()


def end_names(vocabulary: Container[str]) -> list[str]:
    """The names of tokens in `vocabulary` that end an answer."""
    present = {name for name in END_NAMES if name in vocabulary}
    for name, companions in _END_UNLESS.items():
        if any(company <= present for company in companions):
            present.discard(name)
    return [name for name in END_NAMES if name in present]
