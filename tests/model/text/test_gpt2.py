"""GPT-2's whole vocabulary against tiktoken, where PELLUCID_TEST_GPT2 names gpt2.tiktoken.

pip download --no-deps --no-binary :all: openai-whisper   (whisper/assets/gpt2.tiktoken)
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pellucid.text import Tokenizer
from pellucid.text.bytelevel import encode_bytes
from tests.python.text.fixtures.make_gpt2_excerpt import merges_of, read_ranks
from tests.python.text.nasty import BLANKS, NASTY

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def test_as_tiktoken() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    path = os.environ.get("PELLUCID_TEST_GPT2")
    if not path or not Path(path).is_file():
        pytest.skip("PELLUCID_TEST_GPT2 names no file")
    ranks = read_ranks(Path(path))
    judge = tiktoken.Encoding(
        "gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )
    tokens = [encode_bytes(token) for token, _ in sorted(ranks.items(), key=lambda item: item[1])]
    merges = [f"{encode_bytes(left)} {encode_bytes(right)}" for left, right in merges_of(ranks)]
    ours = Tokenizer.from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": [*tokens, "<|endoftext|>"],
            "tokenizer.ggml.token_type": np.array([1] * 50256 + [3], np.int32),
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.eos_token_id": 50256,
        },
        path,
    )
    for text in [*NASTY, *BLANKS, "Michael Jordan played the sport of", "<|endoftext|>"]:
        assert ours.encode(text) == judge.encode(text, disallowed_special=()), repr(text)
        special = judge.encode(text, allowed_special="all")
        assert ours.encode(text, parse_special=True) == special
        assert ours.decode(special, skip_special_tokens=False) == judge.decode(special)
