"""A Hugging Face tokenizer as GGUF metadata.

Two kinds have a form there: byte-level BPE, whose merges are copied and whose way of cutting text
is found among the kinds that GGUF has names for; and SentencePiece's BPE, whose merges become
scores. Others are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library

from pellucid.convert.keys import Keys
from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.formats.gguf_write import Value
from pellucid.text import Tokenizer, folder_chat_templates
from pellucid.text.config_files import MAX_TOKENIZER_BYTES, read_text
from pellucid.text.folder import FolderTokenizer, read_folder
from pellucid.text.gguf_build import cuts_of
from pellucid.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from pellucid.text.vocabulary import TokenKind

PREFIX = "tokenizer.ggml."
_FILE = "tokenizer.json"
# Where several names have one rule, and the first of these is tried first.
_COMMON = ("gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "bloom")
# Texts that known kinds cut differently: case, digits, marks, spaces, newlines, scripts.
_PROBES = (
    "I'll say: HELLO World's don'T camelCase iPhone15 12345678 1,234.5 3.14159",
    "a  b   c\t\td \n\n e\r\n\r\n  f \n",
    "!!! ... (x)=[y]{z} a/b \\ #tag @me $5 100% __init__ --flag ~`^|<>",
    "na\u00efve caf\u00e9 stra\u00dfe \u00c9COLE x\u0301y \u4f60\u597d\u4e16\u754c \u3053\u3093",
    "\ud55c\uad6d\uc5b4 \u0440\u0443\u0441 \u0939\u093f\u0928\u094d \u0661\u0662 \u00bd",
    "\uff01\uff0c\u3002\u201cq\u201d \u2026 \u00a0 \u200b \U0001f600\U0001f1eb\U0001f1f7 end",
)


def tokenizer_keys(folder: Path, vocab_size: int) -> Keys:
    """`tokenizer.*` of the tokenizer in `folder`, with rows of the table past its tokens as unused.

    Raises `BadInput` where there is none, `FormatError` for a damaged one, `UnsupportedError` for a
    kind that has no form in GGUF.
    """
    source = read_folder(folder)
    text = read_text(folder / _FILE, MAX_TOKENIZER_BYTES)
    state: dict[str, Any] = json.loads(text or "{}")
    keys = {**_vocabulary(folder, source, vocab_size), **_kind(folder, source, state, vocab_size)}
    ids = {
        "bos_token_id": source.bos_id,
        "eos_token_id": source.eos_ids[0] if source.eos_ids else None,
        "unknown_token_id": _id_of(source, state.get("model", {}).get("unk_token")),
    }
    keys |= {PREFIX + key: Value("uint32", n) for key, n in ids.items() if n is not None}
    keys[PREFIX + "add_bos_token"] = _flag(
        _adds(folder, source.prefix_ids, source.bos_id, "before")
    )
    keys[PREFIX + "add_eos_token"] = _flag(
        _adds(folder, source.suffix_ids, next(iter(source.eos_ids), None), "after")
    )
    for name, template in folder_chat_templates(folder).sources.items():
        own = "" if name == "default" else f".{name}"
        keys[f"tokenizer.chat_template{own}"] = Value("string", template)
    _check(folder, keys)
    return keys


def _check(folder: Path, keys: Keys) -> None:
    """The probes must become the same tokens by what was written."""
    metadata = {key: value.value for key, value in keys.items()}
    ours, theirs = Tokenizer.from_gguf(metadata, folder), Tokenizer.from_folder(folder)
    for probe in _PROBES:
        if ours.encode(probe) != theirs.encode(probe):
            raise UnsupportedError(
                f"{folder / _FILE}: {probe!r} becomes other tokens by what GGUF can say of it; use "
                "the model as it is"
            )


def _flag(value: bool) -> Value:
    return Value("bool", value)


def _adds(folder: Path, added: tuple[int, ...], token: int | None, where: str) -> bool:
    """Whether the tokenizer puts its end token around a text; GGUF can say nothing else."""
    if added not in ((), (token,)):
        raise UnsupportedError(
            f"{folder / _FILE}: puts tokens {list(added)} {where} a text, and GGUF has no key for "
            "such; use the model as it is"
        )
    return bool(added)


def _id_of(source: FolderTokenizer, token: str | None) -> int | None:
    return None if token is None else source.vocabulary.id_of.get(token)


def _vocabulary(folder: Path, source: FolderTokenizer, vocab_size: int) -> Keys:
    """Tokens and their kinds, one for each row of the table."""
    vocabulary = source.vocabulary
    missing = vocab_size - len(vocabulary)
    if missing < 0:
        problem = f"has {len(vocabulary)} tokens, and the model's table {vocab_size} rows"
        raise FormatError(folder / _FILE, "model.vocab", problem)
    tokens = [token or f"[PAD{i}]" for i, token in enumerate(vocabulary.tokens)]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), vocab_size)]
    kinds = np.array([*vocabulary.kinds, *[int(TokenKind.UNUSED)] * missing], np.int32)
    return {
        PREFIX + "tokens": Value("array of string", tokens),
        PREFIX + "token_type": Value("array of int32", kinds),
    }


def _kind(folder: Path, source: FolderTokenizer, state: Mapping[str, Any], vocab_size: int) -> Keys:
    model = state.get("model", {})
    if model.get("type") != "BPE":
        raise UnsupportedError(
            f"{folder / _FILE}: a {model.get('type')} model has no form in GGUF here, only BPE; "
            "use the model as it is"
        )
    merges = [_merge(merge) for merge in model.get("merges", ())]
    if source.vocabulary.spelling == "bytes":
        name = _pre_tokenizer(folder, bool(model.get("ignore_merges")))
        return {
            PREFIX + "model": Value("string", "gpt2"),
            PREFIX + "pre": Value("string", name),
            PREFIX + "merges": Value("array of string", [" ".join(merge) for merge in merges]),
        }
    return {
        PREFIX + "model": Value("string", "llama"),
        PREFIX + "pre": Value("string", "default"),
        PREFIX + "scores": Value("array of float32", _scores(source, merges, vocab_size)),
        PREFIX + "add_space_prefix": _flag(source.vocabulary.strip_prefix_space),
    }


def _merge(merge: str | list[str]) -> tuple[str, str]:
    """A merge, as either generation of the library writes it."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _scores(
    source: FolderTokenizer, merges: list[tuple[str, str]], vocab_size: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """SentencePiece merges the pair whose token has the highest score: the earlier a token's first
    merge, the higher. What no merge makes comes last."""
    rank: dict[str, int] = {}
    for left, right in merges:
        rank.setdefault(left + right, len(rank))
    scores = np.full(vocab_size, -float(len(rank) + 1), np.float32)
    for token, place in rank.items():
        token_id = source.vocabulary.id_of.get(token)
        if token_id is not None:
            scores[token_id] = -place
    return scores


def _pre_tokenizer(folder: Path, ignore_merges: bool) -> str:
    """The name of the kind that cuts the probes as the folder's tokenizer does."""
    library = Library.from_file(str(folder / _FILE))
    if library.pre_tokenizer is None:
        raise UnsupportedError(f"{folder / _FILE}: cuts no text before merging; use it as it is")
    wanted = [[piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(p)] for p in _PROBES]
    others = sorted(set(PRE_TOKENIZERS) - set(_COMMON) - {"default"})
    for name in (*_COMMON, *others):
        rule = PRE_TOKENIZERS[name]
        if _is_like(rule, ignore_merges) and [cuts_of(rule, probe) for probe in _PROBES] == wanted:
            return name
    raise UnsupportedError(
        f"{folder / _FILE}: cuts text in a way that GGUF has no name for; use the model as it is"
    )


def _is_like(rule: PreTokenizer, ignore_merges: bool) -> bool:
    return rule.byte_level and rule.ignore_merges == ignore_merges and not rule.whole_newline_runs
