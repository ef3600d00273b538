"""Qwen3 (Qwen Team 2025): Qwen2 with a norm on every query and key head in the place of biases."""

from __future__ import annotations

from collections.abc import Iterator

from pellucid.core.spec import ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models import llama
from pellucid.models.fields import Fields
from pellucid.models.llama import (
    layer_from_config,
    layer_from_gguf,
    model_from_config,
    model_from_gguf,
    qk_norm_names,
)
from pellucid.models.names import layers
from pellucid.models.qwen2 import windowed
from pellucid.models.weights import Tensor

GGUF_ARCHITECTURES = ("qwen3",)
HF_ARCHITECTURES = ("Qwen3ForCausalLM",)

enter, decoder_layer, leave = llama.enter, llama.decoder_layer, llama.leave


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    bias = config.flag("attention_bias", False)
    stack = windowed(config, layer_from_config(config, context, head_dim=128))
    return model_from_config(config, "qwen3", stack, qkv_bias=bias, output_bias=bias)


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    layer = layer_from_gguf(fields, checkpoint, context, "half")
    return model_from_gguf(fields, checkpoint, "qwen3", (layer,) * fields.layers("block_count"))


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    yield from llama.tensors(spec)
    yield from layers(spec, qk_norm_names)
