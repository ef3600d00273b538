"""Byte-level BPE against tiktoken, by GPT-2's rule of splitting: the part of GPT-2's vocabulary
that is kept here, a vocabulary learnt from hard text, and GPT-2's whole one where
PELLUCID_TEST_GPT2 names gpt2.tiktoken.

pip download --no-deps --no-binary :all: openai-whisper   (whisper/assets/gpt2.tiktoken)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiktoken

from pellucid.text import Tokenizer, train_bpe
from pellucid.text.bytelevel import decode_chars, encode_bytes
from tests.python.text.fixtures.make_gpt2_excerpt import merges_of, read_ranks
from tests.python.text.nasty import BLANKS, NASTY
from tests.python.text.vocabularies import fixture

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WHOLE = os.environ.get("PELLUCID_TEST_GPT2", "")


def excerpt() -> list[bytes]:
    vocabulary: dict[str, int] = fixture("gpt2_excerpt.json")["vocab"]
    return [decode_chars(token) for token in sorted(vocabulary, key=vocabulary.__getitem__)]


def learnt() -> list[bytes]:
    return list(train_bpe([text.encode() for text in NASTY] * 2, 1500).tokens)


def whole() -> list[bytes]:
    ranks = read_ranks(Path(WHOLE))
    return sorted(ranks, key=ranks.__getitem__)


@pytest.mark.parametrize("source", [excerpt, learnt, *([whole] if WHOLE else [])])
def test_as_tiktoken(source: Callable[[], list[bytes]]) -> None:
    tokens = source()
    ranks = {token: rank for rank, token in enumerate(tokens)}
    end = len(tokens)
    judge = tiktoken.Encoding(
        "gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end}
    )
    merges = [f"{encode_bytes(left)} {encode_bytes(right)}" for left, right in merges_of(ranks)]
    ours = Tokenizer.from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": [*map(encode_bytes, tokens), "<|endoftext|>"],
            "tokenizer.ggml.token_type": np.array([1] * end + [3], np.int32),
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.eos_token_id": end,
        },
        "gpt2.gguf",
    )
    for text in [*NASTY, *BLANKS, "Michael Jordan played the sport of", "<|endoftext|>"]:
        assert ours.encode(text) == judge.encode(text, disallowed_special=()), repr(text)
        special = judge.encode(text, allowed_special="all")
        assert ours.encode(text, parse_special=True) == special
        assert ours.decode(special, skip_special_tokens=False) == judge.decode(special)
