"""Phi-3, 3.5 and 4 (Abdin et al. 2024): Llama with Q, K and V in one product, gate and up in
another, and LongRoPE for the long contexts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models import llama
from pellucid.models.fields import Fields
from pellucid.models.llama import (
    layer_from_config,
    layer_from_gguf,
    model_from_config,
    model_from_gguf,
    window_from_config,
)
from pellucid.models.names import ends, layers
from pellucid.models.weights import Tensor

GGUF_ARCHITECTURES = ("phi3",)
HF_ARCHITECTURES = ("Phi3ForCausalLM",)

enter, decoder_layer, leave = llama.enter, llama.decoder_layer, llama.leave


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    window = window_from_config(config)
    layer = dataclasses.replace(layer_from_config(config, context), window=window)
    # What Phi-4-mini's configuration also says.
    for key, value in (
        ("attention_bias", False),
        ("mlp_bias", False),
        ("lm_head_bias", False),
        ("full_attn_mod", 1),
        ("interpolate_factor", 1),
    ):
        config.only(key, value)
    stack = (layer,) * config.layers("num_hidden_layers")
    return model_from_config(config, "phi3", stack, norm_eps=1e-5)


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    window = fields.whole("attention.sliding_window", 0, low=0) or None
    layer = dataclasses.replace(layer_from_gguf(fields, checkpoint, context, "half"), window=window)
    return model_from_gguf(fields, checkpoint, "phi3", (layer,) * fields.layers("block_count"))


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    yield from ends(spec)
    yield from layers(spec, _layer_names)


def _layer_names(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    d, ffn, q_dim = spec.d_model, layer.ffn_dim, layer.n_heads * layer.head_dim
    qkv_dim = q_dim + 2 * layer.n_kv_heads * layer.head_dim
    yield Tensor("attn_norm.weight", (d,), "input_layernorm.weight")
    yield Tensor("attn_qkv.weight", (qkv_dim, d), "self_attn.qkv_proj.weight")
    yield Tensor("attn_output.weight", (d, q_dim), "self_attn.o_proj.weight")
    yield Tensor("ffn_norm.weight", (d,), "post_attention_layernorm.weight")
    # Gate above up; GGUF has no name for the two together.
    yield Tensor("ffn_up.weight", (2 * ffn, d), "mlp.gate_up_proj.weight")
    yield Tensor("ffn_down.weight", (d, ffn), "mlp.down_proj.weight")
