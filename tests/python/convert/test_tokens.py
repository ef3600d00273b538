"""Tokenizers of folders as GGUF metadata: the same tokens, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from pellucid.convert.keys import Keys
from pellucid.convert.tokens import tokenizer_keys
from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.text import Tokenizer, gguf_chat_templates
from tests.python.text.nasty import BLANKS, NASTY

SPECIALS = ["<unk>", "<s>", "</s>", "<|im_end|>"]
# As the published files of these models write them.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
QWEN2 = rf"{_WORDS}|\p{{N}}|{_REST}"


def split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


CUTS = {
    "gpt-2": (pre_tokenizers.ByteLevel(add_prefix_space=False), False),
    "qwen2": (split_by(QWEN2), False),
    "llama-bpe": (split_by(LLAMA3), True),
    "smollm": (
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        ),
        False,
    ),
}


def byte_level(kind: str) -> tokenizers.Tokenizer:
    cut, ignore_merges = CUTS[kind]
    library = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    library.pre_tokenizer, library.decoder = cut, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator([*NASTY, *BLANKS, "the cat sat 12345 " * 20], trainer)
    library.add_tokens(["<tag>"])
    return library


def sentence_piece(prefix: bool, complete: bool = True) -> tokenizers.Tokenizer:
    """BPE over pieces with byte fallback. SentencePiece merges any two tokens that make a third,
    so that files made from it list every such pair; `complete` says whether this one does."""
    words = ["\u2581the", "\u2581cat", "\u2581hello", "wor", "ld", "\u2581World", "don", "ing"]
    parts = dict.fromkeys(w[:n] for w in words for n in range(2, len(w) + 1))
    tokens = [*parts, *dict.fromkeys(w[-n:] for w in words for n in range(2, len(w)))]
    tokens = list(dict.fromkeys(tokens))
    chars = sorted(set("".join(words)) | set("abcdefghijklmnopqrstuvwxyz "))
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    vocab = {t: i for i, t in enumerate(dict.fromkeys([*SPECIALS, *bytes_, *chars, *tokens]))}
    merges = [
        (token[:cut], token[cut:])
        for token in tokens
        for cut in range(1, len(token))
        if token[:cut] in vocab and token[cut:] in vocab
    ]
    if not complete:
        made = {left + right: (left, right) for left, right in reversed(merges)}
        merges = [made[token] for token in tokens if token in made]
    library = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "\u2581")]
    library.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581")] * prefix + steps)
    undo = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence(undo + [decoders.Strip(" ", 1, 0)] * prefix)
    library.add_special_tokens(SPECIALS)
    return library


def folder(path: Path, library: tokenizers.Tokenizer, **config: object) -> Path:
    library.save(str(path / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", **config}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def both(path: Path, extra_rows: int = 0) -> tuple[Tokenizer, Tokenizer, Keys]:
    theirs = Tokenizer.from_folder(path)
    keys = tokenizer_keys(path, theirs.vocab_size + extra_rows)
    return theirs, Tokenizer.from_gguf({k: v.value for k, v in keys.items()}, path), keys


def assert_same(theirs: Tokenizer, ours: Tokenizer) -> None:
    for text in [*NASTY, *BLANKS, "hello World, the cat don't <tag> 123456", "<s>a</s>"]:
        for special in (False, True):
            ids = theirs.encode(text, parse_special=special)
            assert ours.encode(text, parse_special=special) == ids, repr(text)
            assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("kind", sorted(CUTS))
def test_byte_level(tmp_path: Path, kind: str) -> None:
    theirs, ours, keys = both(folder(tmp_path, byte_level(kind)))
    assert keys["tokenizer.ggml.pre"].value == kind
    assert_same(theirs, ours)
    assert (ours.bos_id, ours.eos_ids) == (theirs.bos_id, theirs.eos_ids)
    assert ours.add_bos is ours.add_eos is False


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece(tmp_path: Path, prefix: bool) -> None:
    theirs, ours, keys = both(folder(tmp_path, sentence_piece(prefix)))
    assert keys["tokenizer.ggml.model"].value == "llama"
    assert_same(theirs, ours)


def test_pairs_that_scores_would_merge_and_the_file_does_not(tmp_path: Path) -> None:
    library = sentence_piece(True, complete=False)
    with pytest.raises(UnsupportedError, match="becomes other tokens"):
        both(folder(tmp_path, library))


def test_what_is_added_around_a_text(tmp_path: Path) -> None:
    library = byte_level("llama-bpe")
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", library.token_to_id("<s>"))]
    )
    theirs, ours, _ = both(folder(tmp_path, library))
    assert ours.add_bos and ours.encode("a") == theirs.encode("a")
    ends = library.token_to_id("<|im_end|>")
    library.post_processor = processors.TemplateProcessing(
        single="<|im_end|> $A", special_tokens=[("<|im_end|>", ends)]
    )
    with pytest.raises(UnsupportedError, match="before a text"):
        both(folder(tmp_path, library))


def test_rows_past_the_last_token(tmp_path: Path) -> None:
    path = folder(tmp_path, byte_level("gpt-2"), chat_template="{{ messages }}")
    theirs, _, keys = both(path, extra_rows=3)
    n = theirs.vocab_size
    assert keys["tokenizer.ggml.tokens"].value[n:] == [f"[PAD{n + i}]" for i in range(3)]
    np.testing.assert_array_equal(keys["tokenizer.ggml.token_type"].value[n:], [5, 5, 5])
    templates = gguf_chat_templates({k: v.value for k, v in keys.items()}, path)
    assert templates.sources == {"default": "{{ messages }}"}
    with pytest.raises(FormatError, match="the model's table"):
        tokenizer_keys(path, n - 1)


def test_kinds_without_a_form(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no tokenizer\.json"):
        tokenizer_keys(tmp_path, 10)
    library = byte_level("gpt-2")
    library.pre_tokenizer = split_by(r"\p{N}{1,5}|[a-y]+| +|z")
    with pytest.raises(UnsupportedError, match="no name for"):
        tokenizer_keys(folder(tmp_path, library), 600)
    unigram = tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("\u2581a", -1.0)], 0, False))
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    with pytest.raises(UnsupportedError, match="a Unigram model"):
        tokenizer_keys(folder(tmp_path, unigram, bos_token=None, eos_token=None), 600)
