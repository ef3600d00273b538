"""Gemma (Gemma Team 2024): Llama with GeGLU, embeddings scaled by sqrt(d) and a tied head.

Two habits of all Gemma models are here. Their norms multiply by 1 + w: Hugging Face checkpoints
hold w, and the 1 is added when they are loaded; GGUF files have it in. And the embedding scale is
exact in float32, where transformers rounds it to the weights' own type (55.43 to 55.5 in
bfloat16).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models import llama
from pellucid.models.fields import Fields
from pellucid.models.llama import attention_names, layer_from_gguf, mlp_names
from pellucid.models.names import ends, layers
from pellucid.models.parts import attention, embed, geglu
from pellucid.models.rope import rope_from_config
from pellucid.models.weights import Tensor, Weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops

GGUF_ARCHITECTURES = ("gemma",)
HF_ARCHITECTURES = ("GemmaForCausalLM",)


def enter(ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array:
    """Rows [T, d] for the first layer."""
    return embed(ops, spec, weights, step)


def decoder_layer(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """One layer of rows x [T, d]."""
    normed = ops.rms_norm(x, w["attn_norm.weight"], spec.norm_eps)
    x = x + attention(ops, spec, layer, w, normed, index, step)
    return x + geglu(ops, w, ops.rms_norm(x, w["ffn_norm.weight"], spec.norm_eps))


def leave(ops: Ops, spec: ModelSpec, weights: Weights, x: Array) -> Array:
    """Rows x [R, d], normed for the head."""
    return ops.rms_norm(x, weights["output_norm.weight"], spec.norm_eps)


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    layer, trained = layer_from_config(config), config.whole("max_position_embeddings", 8192)
    rope = rope_from_config(config, layer.head_dim, context or trained, 10000.0)
    stack = (dataclasses.replace(layer, rope=rope),) * config.layers("num_hidden_layers")
    return model_from_config(config, "gemma", stack)


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    layer = layer_from_gguf(fields, checkpoint, context, "half")
    return model_from_gguf(fields, checkpoint, "gemma", (layer,) * fields.layers("block_count"))


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    return one_plus(ends(spec), layers(spec, attention_names), layers(spec, mlp_names))


# What Gemma 2 and 3 share with this


def layer_from_config(config: Fields) -> LayerSpec:
    """What all layers have in common, but for positions, window and caps."""
    config.only("hidden_act", "gelu_pytorch_tanh", "gelu")  # old files say gelu and mean this
    config.only("hidden_activation", "gelu_pytorch_tanh")
    config.only("use_bidirectional_attention", False)
    n_heads, head_dim = config.heads("num_attention_heads"), config.whole("head_dim", 256)
    return LayerSpec(
        n_heads=n_heads,
        n_kv_heads=config.heads("num_key_value_heads", n_heads),
        head_dim=head_dim,
        ffn_dim=config.whole("intermediate_size"),
        attention_scale=head_dim**-0.5,
    )


def model_from_config(
    config: Fields, family: str, stack: tuple[LayerSpec, ...], logit_softcap: float | None = None
) -> ModelSpec:
    d_model, biased = config.whole("hidden_size"), config.flag("attention_bias", False)
    return ModelSpec(
        family=family,
        d_model=d_model,
        vocab_size=config.whole("vocab_size"),
        context_length=config.whole("max_position_embeddings", 8192),
        norm_eps=config.positive("rms_norm_eps", 1e-6),
        layers=stack,
        embedding_scale=d_model**0.5,
        logit_softcap=logit_softcap,
        tied_head=config.flag("tie_word_embeddings", True),
        extra={"qkv_bias": biased, "output_bias": biased, "mlp_bias": False},
    )


def model_from_gguf(
    fields: Fields,
    checkpoint: Checkpoint,
    family: str,
    stack: tuple[LayerSpec, ...],
    logit_softcap: float | None = None,
) -> ModelSpec:
    spec = llama.model_from_gguf(fields, checkpoint, family, stack)
    scale = spec.d_model**0.5
    return dataclasses.replace(spec, embedding_scale=scale, logit_softcap=logit_softcap)


def one_plus(*parts: Iterable[Tensor]) -> Iterator[Tensor]:
    """The same tensors, with the 1 that Hugging Face checkpoints leave out of norm weights."""
    for part in parts:
        for tensor in part:
            if tensor.name.endswith("norm.weight"):
                tensor = dataclasses.replace(tensor, convert=_add_one)
            yield tensor


def _add_one(w: NDArray[np.float32]) -> NDArray[np.float32]:
    return w + np.float32(1.0)
