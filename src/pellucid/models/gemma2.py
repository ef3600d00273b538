"""Gemma 2 (Gemma Team 2024b): norms before and after each part, attention near and far in turn,
scores and logits held by soft caps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.fields import Fields
from pellucid.models.gemma import (
    layer_from_config,
    model_from_config,
    model_from_gguf,
    one_plus,
)
from pellucid.models.llama import attention_names, layer_from_gguf
from pellucid.models.names import ends, layers
from pellucid.models.parts import attention, embed, geglu
from pellucid.models.rope import rope_from_config
from pellucid.models.weights import Tensor, Weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops

GGUF_ARCHITECTURES = ("gemma2",)
HF_ARCHITECTURES = ("Gemma2ForCausalLM",)

_FULL_EVERY = 2  # layers 1, 3, 5, ... see everything
_LAYERS_OF_27B = 46
# What a file without a word of them means; null is none.
_WINDOW, _SCORE_CAP, _LOGIT_CAP = 4096, 50.0, 30.0


def enter(ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array:
    """Rows [T, d] for the first layer."""
    return embed(ops, spec, weights, step)


def decoder_layer(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """One layer of rows x [T, d]."""
    normed = ops.rms_norm(x, w["attn_norm.weight"], spec.norm_eps)
    y = attention(ops, spec, layer, w, normed, index, step)
    x = x + ops.rms_norm(y, w["post_attention_norm.weight"], spec.norm_eps)
    y = geglu(ops, w, ops.rms_norm(x, w["ffn_norm.weight"], spec.norm_eps))
    return x + ops.rms_norm(y, w["post_ffw_norm.weight"], spec.norm_eps)


def leave(ops: Ops, spec: ModelSpec, weights: Weights, x: Array) -> Array:
    """Rows x [R, d], normed for the head."""
    return ops.rms_norm(x, weights["output_norm.weight"], spec.norm_eps)


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    layer, trained = layer_from_config(config), config.whole("max_position_embeddings", 8192)
    layer = dataclasses.replace(
        layer,
        attention_scale=config.positive("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=cap(config, "attn_logit_softcapping", _SCORE_CAP),
        rope=rope_from_config(config, layer.head_dim, context or trained, 10000.0),
    )
    window = window_from_config(config, _WINDOW)
    config.only("sliding_window_size", window)
    near = near_layers_from_config(config, _FULL_EVERY)
    stack = tuple(dataclasses.replace(layer, window=window if n else None) for n in near)
    softcap = cap(config, "final_logit_softcapping", _LOGIT_CAP)
    return model_from_config(config, "gemma2", stack, softcap)


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    layer = layer_from_gguf(fields, checkpoint, context, "half")
    layer = dataclasses.replace(
        layer,
        attention_scale=scale_from_gguf(fields, layer, _LAYERS_OF_27B),
        attention_softcap=cap(fields, "attn_logit_softcapping", _SCORE_CAP),
    )
    window = fields.whole("attention.sliding_window", _WINDOW)
    near = near_layers_from_gguf(fields, _FULL_EVERY)
    stack = tuple(dataclasses.replace(layer, window=window if n else None) for n in near)
    softcap = cap(fields, "final_logit_softcapping", _LOGIT_CAP)
    return model_from_gguf(fields, checkpoint, "gemma2", stack, softcap)


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    return one_plus(ends(spec), layers(spec, block))


# What Gemma 3 shares with this


def block(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    """Attention and GeGLU of one layer, each between two norms."""
    d, ffn = spec.d_model, layer.ffn_dim
    yield from attention_names(spec, layer)
    yield Tensor("post_attention_norm.weight", (d,), "post_attention_layernorm.weight")
    yield Tensor("ffn_norm.weight", (d,), "pre_feedforward_layernorm.weight")
    yield Tensor("ffn_gate.weight", (ffn, d), "mlp.gate_proj.weight")
    yield Tensor("ffn_up.weight", (ffn, d), "mlp.up_proj.weight")
    yield Tensor("ffn_down.weight", (d, ffn), "mlp.down_proj.weight")
    yield Tensor("post_ffw_norm.weight", (d,), "post_feedforward_layernorm.weight")


def cap(fields: Fields, key: str, default: float | None = None) -> float | None:
    """A soft cap; null is none, and no word of it the family's own."""
    if key in fields:
        return fields.positive(key)
    return None if fields.given(key) else default


def window_from_config(config: Fields, default: int) -> int | None:
    """Positions that a near layer sees; null is all, and no word of it the family's own."""
    if "sliding_window" in config:
        return config.whole("sliding_window")
    return None if config.given("sliding_window") else default


def near_layers_from_config(config: Fields, full_every: int) -> list[bool]:
    """Which layers see only a window: `layer_types`, or all but every n-th."""
    n_layers = config.layers("num_hidden_layers")
    pattern = config.either("sliding_window_pattern", "_sliding_window_pattern")
    every = config.whole(pattern, full_every)
    kinds = config.raw("layer_types")
    if kinds is None:
        return [(i + 1) % every != 0 for i in range(n_layers)]
    if not isinstance(kinds, list) or len(kinds) != n_layers:
        raise FormatError(
            config.path, "layer_types", f"does not name the kind of {n_layers} layers"
        )
    for kind in kinds:
        if kind not in ("sliding_attention", "full_attention"):
            raise UnsupportedError(f"{config.path}: layer_types: {kind!r} is not implemented")
    return [kind == "sliding_attention" for kind in kinds]


def near_layers_from_gguf(fields: Fields, full_every: int) -> list[bool]:
    """Which layers see only a window: by a flag for each, or all but every n-th."""
    n_layers, key = fields.layers("block_count"), "attention.sliding_window_pattern"
    value = fields.raw(key)
    if not hasattr(value, "__len__") or isinstance(value, str):
        every = fields.whole(key, full_every)
        return [(i + 1) % every != 0 for i in range(n_layers)]
    if len(value) != n_layers:
        raise FormatError(
            fields.path, fields.prefix + key, f"has no flag for each of {n_layers} layers"
        )
    return [bool(flag) for flag in value]


def scale_from_gguf(fields: Fields, layer: LayerSpec, layers_of_27b: int) -> float:
    """The format has no key for it: the 27B models, known by their depth, divide queries by the
    root of the width each head has a share of; the others by that of a head's own."""
    if fields.layers("block_count") == layers_of_27b:
        return float((fields.whole("embedding_length") // layer.n_heads) ** -0.5)
    return float(layer.head_dim**-0.5)
