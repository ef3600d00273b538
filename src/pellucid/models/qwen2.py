"""Qwen2 and 2.5 (Qwen Team 2024): Llama with a bias on Q, K and V.

Where `use_sliding_window` asks for it, the layers from `max_window_layers` on have a window.
"""

from __future__ import annotations

import dataclasses

from pellucid.core.errors import FormatError
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

GGUF_ARCHITECTURES = ("qwen2",)
HF_ARCHITECTURES = ("Qwen2ForCausalLM",)

enter, decoder_layer, leave = llama.enter, llama.decoder_layer, llama.leave
tensors = llama.tensors


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    stack = windowed(config, layer_from_config(config, context))
    config.only("attention_bias", True)
    return model_from_config(config, "qwen2", stack, qkv_bias=True)


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    layer = layer_from_gguf(fields, checkpoint, context, "half")
    spec = model_from_gguf(fields, checkpoint, "qwen2", (layer,) * fields.layers("block_count"))
    return dataclasses.replace(spec, extra={**spec.extra, "qkv_bias": True})


def windowed(config: Fields, layer: LayerSpec) -> tuple[LayerSpec, ...]:
    """Every layer, with its window: as `layer_types` says, or else by `max_window_layers`."""
    n_layers, first = (
        config.layers("num_hidden_layers"),
        config.whole("max_window_layers", 28, low=0),
    )
    window = window_from_config(config, 4096)
    if not config.flag("use_sliding_window", False):
        window = None
    slides = [window is not None and index >= first for index in range(n_layers)]
    if "layer_types" in config:
        slides = _sliding(config, n_layers)
        if any(slides) and window is None:
            raise FormatError(
                config.path, "layer_types", "names sliding_attention, and there is no window"
            )
    return tuple(dataclasses.replace(layer, window=window if s else None) for s in slides)


def _sliding(config: Fields, n_layers: int) -> list[bool]:
    kinds = config.raw("layer_types")
    known = {"full_attention": False, "sliding_attention": True}
    if not isinstance(kinds, list) or len(kinds) != n_layers or not all(k in known for k in kinds):
        raise FormatError(
            config.path,
            "layer_types",
            f"must name full_attention or sliding_attention for each of {n_layers} layers",
        )
    return [known[kind] for kind in kinds]
