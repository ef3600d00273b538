"""BLOOM against transformers, and its GGUF form."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import gguf

from pellucid.core.spec import LayerSpec

from .gguf_twin import Float32, Recipe, State
from .runner import (
    Case,
    FamilySuite,
    changed,
    dropped,
    layer_with,
    other_gelu,
    without_norm,
    wrong_layer,
    zero_logits,
)


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(4 * config.hidden_size)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def convert(state: State, config: Any) -> State:
    def apart(fused: Float32) -> Float32:
        by_head = fused.reshape(config.n_head, 3, -1, *fused.shape[1:])
        return by_head.swapaxes(0, 1).reshape(fused.shape)

    return {
        name.removeprefix("transformer."): apart(array) if "query_key_value" in name else array
        for name, array in state.items()
    }


GGUF = Recipe("bloom", keys, convert)


def first_slope_doubled(layer: LayerSpec) -> LayerSpec:
    first, *rest = layer.alibi_slopes
    return dataclasses.replace(layer, alibi_slopes=(2 * first, *rest))


def slopes_of_the_power_below(layer: LayerSpec) -> LayerSpec:
    """What a naive formula gives six heads."""
    slopes = tuple(2.0 ** (-8 * h / layer.n_heads) for h in range(1, layer.n_heads + 1))
    return dataclasses.replace(layer, alibi_slopes=slopes)


def fused_by_head(w: Float32) -> Float32:
    """Q, K and V left as a Hugging Face checkpoint has them."""
    return w.reshape(3, 6, -1, w.shape[1]).swapaxes(0, 1).reshape(w.shape)


FAULTS = {
    "zero logits": zero_logits,
    "a wrong slope": wrong_layer(first_slope_doubled, 0),
    "slopes for a power of two": wrong_layer(slopes_of_the_power_below),
    "no ALiBi": wrong_layer(layer_with(alibi_slopes=()), 1),
    "no embedding norm": without_norm("token_embd_norm.weight"),
    "no bias of the embedding norm": dropped("token_embd_norm.bias"),
    "a dropped QKV bias": dropped("blk.0.attn_qkv.bias"),
    "QKV still by head": changed("blk.1.attn_qkv.weight", fused_by_head),
    "the other GELU": other_gelu,
}

BASE = {"vocab_size": 96, "hidden_size": 48, "n_layer": 2, "n_head": 6}


class TestBloom(FamilySuite):
    CASES: ClassVar[dict[str, Case]] = {
        "six heads": Case("BloomConfig", BASE, FAULTS, GGUF),
        "eight heads, untied": Case(
            "BloomConfig", {**BASE, "n_head": 8, "tie_word_embeddings": False}, {}, GGUF
        ),
    }
