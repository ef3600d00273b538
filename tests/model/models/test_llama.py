"""Llama against transformers: every kind of scaled rotary embedding, and its GGUF form."""

from __future__ import annotations

import dataclasses
from typing import Any

import gguf
import numpy as np

from .gguf_twin import Recipe, State, common_keys, interleaved
from .runner import (
    Case,
    FamilySuite,
    changed,
    dropped,
    wrong_layer,
    wrong_rope_sign,
    wrong_spec,
    zero_logits,
)


def convert(state: State, config: Any) -> State:
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    return {
        name: next((interleaved(array, n) for part, n in heads.items() if part in name), array)
        for name, array in state.items()
    }


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    common_keys(writer, config)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])


GGUF = Recipe("llama", keys, convert)

FAULTS = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "another epsilon": wrong_spec(norm_eps=1e-3),
    "an unscaled norm": changed("blk.1.ffn_norm.weight", np.ones_like),
    "attention unscaled": wrong_layer(
        lambda layer: dataclasses.replace(layer, attention_scale=1.0)
    ),
}

BASE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}


def scaled(**parameters: Any) -> dict[str, Any]:
    return {**BASE, "rope_parameters": {"rope_theta": 10000.0, **parameters}}


class TestLlama(FamilySuite):
    CASES = {
        "plain": Case("LlamaConfig", BASE, FAULTS, GGUF),
        "biased, tied, one head each": Case(
            "LlamaConfig",
            {
                **BASE,
                "attention_bias": True,
                "tie_word_embeddings": True,
                "num_key_value_heads": 6,
                "head_dim": 16,
            },
            {"a dropped bias": dropped("blk.0.attn_k.bias")},
            GGUF,
        ),
    }
