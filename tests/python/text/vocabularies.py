"""Small tokenizers of every kind, made from the fixtures."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.text import Tokenizer
from pellucid.text.bytelevel import BYTE_TO_CHAR
from pellucid.text.pretokenizers import MISSING, PRE_TOKENIZERS

FIXTURES = Path(__file__).parent / "fixtures"
FILE = "small.gguf"


@cache
def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text(encoding="ascii"))


def kind_metadata(kind: str) -> dict[str, object]:
    """GGUF metadata of the small vocabulary with merges, of a pre-tokenizer kind."""
    data = fixture("llama_kinds.json")
    rule = MISSING if kind == "missing" else PRE_TOKENIZERS[kind]
    if rule.byte_level:
        tokens, merges = list(data["byte_tokens"]), data["byte_merges"]
        types = [1] * len(tokens)
    else:
        tokens, merges = list(data["raw_tokens"]), data["raw_merges"]
        types = [6] * 256 + [1] * (len(tokens) - 256)
    tokens += [text for text, _ in data["added"]]
    types += [number for _, number in data["added"]]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, dtype=np.int32),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
    }
    if kind != "missing":
        metadata["tokenizer.ggml.pre"] = kind
    return metadata


@cache
def kind_tokenizer(kind: str) -> Tokenizer:
    return Tokenizer.from_gguf(kind_metadata(kind), FILE)


SCORES = {
    "own": lambda score: score,
    "flat": lambda score: -1000.0,
    "thirds": lambda score: float(int(score / 3)),
}


def spm_metadata(model_type: str, setting: str) -> dict[str, object]:
    """GGUF metadata of the small SentencePiece vocabulary, changed as one of the settings says."""
    data = fixture("llama_spm.json")["vocabularies"][model_type]
    settings = data["answers"][setting]["settings"]
    change = SCORES[settings.get("scores", "own")]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama" if model_type == "bpe" else "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": list(data["tokens"]),
        "tokenizer.ggml.scores": np.array(list(map(change, data["scores"])), dtype=np.float32),
        "tokenizer.ggml.token_type": np.array(data["types"], dtype=np.int32),
    }
    if model_type == "unigram":
        metadata["tokenizer.ggml.unknown_token_id"] = 0
        metadata["tokenizer.ggml.eos_token_id"] = 2
    for key, value in settings.items():
        if key != "scores":
            metadata[f"tokenizer.ggml.{key}"] = value
    return metadata


@cache
def spm_tokenizer(model_type: str, setting: str = "plain") -> Tokenizer:
    return Tokenizer.from_gguf(spm_metadata(model_type, setting), FILE)


@cache
def byte_tokenizer() -> Tokenizer:
    """No merges at all: a token a byte, and one control token."""
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*BYTE_TO_CHAR, "<|end|>"],
        "tokenizer.ggml.token_type": np.array([1] * 256 + [3], dtype=np.int32),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 256,
    }
    return Tokenizer.from_gguf(metadata, FILE)


def every_tokenizer() -> dict[str, Tokenizer]:
    """One of each way to spell and merge."""
    return {
        "bytes": byte_tokenizer(),
        "gpt-2": kind_tokenizer("gpt-2"),
        "llama-bpe": kind_tokenizer("llama-bpe"),
        "gemma4": kind_tokenizer("gemma4"),
        "spm": spm_tokenizer("bpe"),
        "spm flat": spm_tokenizer("bpe", "flat"),
        "spm no prefix": spm_tokenizer("bpe", "no_prefix"),
        "unigram": spm_tokenizer("unigram"),
    }
