"""Qwen3-MoE (Qwen Team 2025): Qwen3 with a mixture of many small experts in most layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from pellucid.core.errors import FormatError
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models import llama
from pellucid.models.fields import Fields
from pellucid.models.llama import (
    MAX_EXPERTS,
    attention_names,
    layer_from_config,
    layer_from_gguf,
    mlp_names,
    model_from_config,
    model_from_gguf,
    qk_norm_names,
    window_from_config,
)
from pellucid.models.names import ends, expert_names, layers
from pellucid.models.weights import Tensor

GGUF_ARCHITECTURES = ("qwen3moe",)
HF_ARCHITECTURES = ("Qwen3MoeForCausalLM",)

enter, decoder_layer, leave = llama.enter, llama.decoder_layer, llama.leave


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    dense = layer_from_config(config, context)
    if config.flag("use_sliding_window", False):
        config.only("max_window_layers", 0)  # every layer has the window
        dense = dataclasses.replace(dense, window=window_from_config(config, 4096))
    config.harmless(["sliding_window", "max_window_layers"])
    n_experts = config.whole(config.either("num_experts", "num_local_experts"), high=MAX_EXPERTS)
    sparse = dataclasses.replace(
        dense,
        ffn_dim=config.whole("moe_intermediate_size"),
        n_experts=n_experts,
        n_experts_used=config.whole("num_experts_per_tok", high=n_experts),
        normalize_expert_weights=config.flag("norm_topk_prob", False),
    )
    stack = tuple(dense if kept else sparse for kept in _kept_dense(config))
    bias = config.flag("attention_bias", False)
    return model_from_config(config, "qwen3_moe", stack, qkv_bias=bias, output_bias=bias)


def _kept_dense(config: Fields) -> list[bool]:
    """Which layers keep a plain SwiGLU: those listed, and those between every sparse step."""
    n_layers, step = config.layers("num_hidden_layers"), config.whole("decoder_sparse_step", 1)
    listed = config.raw("mlp_only_layers") or []
    if not isinstance(listed, list) or not all(isinstance(index, int) for index in listed):
        raise FormatError(config.path, "mlp_only_layers", "must list layers by number")
    return [index in listed or (index + 1) % step != 0 for index in range(n_layers)]


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    n_experts = fields.whole("expert_count", high=MAX_EXPERTS)
    layer = dataclasses.replace(
        layer_from_gguf(fields, checkpoint, context, "half"),
        ffn_dim=fields.whole("expert_feed_forward_length"),
        n_experts=n_experts,
        n_experts_used=fields.whole("expert_used_count", high=n_experts),
        # Converters leave the key out; all published models normalise.
        normalize_expert_weights=fields.flag("expert_weights_norm", True),
    )
    return model_from_gguf(fields, checkpoint, "qwen3_moe", (layer,) * fields.layers("block_count"))


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    yield from ends(spec)
    yield from layers(spec, attention_names)
    yield from layers(spec, qk_norm_names)
    yield from layers(spec, _feed_forward_names)


def _feed_forward_names(spec: ModelSpec, layer: LayerSpec) -> Iterable[Tensor]:
    if not layer.n_experts:
        return mlp_names(spec, layer)
    return expert_names(spec, layer, block="mlp", parts=("gate_proj", "up_proj", "down_proj"))
