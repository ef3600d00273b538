"""Gemma 3 (Gemma Team 2025): Gemma 2's block with normed queries and keys instead of capped
scores, five layers near to one far, each kind with a rotary base of its own.

Of a model that also sees (Gemma3ForConditionalGeneration) the language model is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from pellucid.core.spec import ModelSpec, RopeSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.fields import Fields
from pellucid.models.gemma import (
    layer_from_config,
    model_from_config,
    model_from_gguf,
    one_plus,
)
from pellucid.models.gemma2 import (
    block,
    cap,
    decoder_layer,
    enter,
    leave,
    near_layers_from_config,
    near_layers_from_gguf,
    scale_from_gguf,
    window_from_config,
)
from pellucid.models.llama import layer_from_gguf, qk_norm_names
from pellucid.models.names import ends, layers
from pellucid.models.rope import rope_from_parameters
from pellucid.models.weights import Tensor

__all__ = ["decoder_layer", "enter", "leave", "spec_from_config", "spec_from_gguf", "tensors"]

GGUF_ARCHITECTURES = ("gemma3",)
HF_ARCHITECTURES = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")

_FULL_EVERY = 6
_LAYERS_OF_27B = 62
_WINDOW = 4096
_NEAR_BASE, _FAR_BASE = 10000.0, 1e6

# Published files of the seeing models leave these out of `text_config`.
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    text = _text_config(config)
    text.only("attn_logit_softcapping")  # Gemma 3 has none, whatever some files say
    layer, trained = layer_from_config(text), text.whole("max_position_embeddings")
    near_rope, far_rope = _ropes(text, layer.head_dim, context or trained)
    scale = text.positive("query_pre_attn_scalar", 256) ** -0.5
    far = dataclasses.replace(layer, attention_scale=scale, rope=far_rope)
    window = window_from_config(text, _WINDOW)
    near = dataclasses.replace(far, window=window, rope=near_rope)
    stack = tuple(near if n else far for n in near_layers_from_config(text, _FULL_EVERY))
    spec = model_from_config(text, "gemma3", stack, cap(text, "final_logit_softcapping"))
    text.finish_config()
    return spec


def _text_config(config: Fields) -> Fields:
    """The keys of the language model, with its class's defaults."""
    if "text_config" not in config:
        return _with_defaults(config.everything(), config)
    config.only("tie_word_embeddings", True)
    config.harmless(
        "vision_config mm_tokens_per_image image_token_index boi_token_index eoi_token_index"
        " image_token_id boi_token_id eoi_token_id".split()
    )
    given = config.section("text_config").everything()
    return _with_defaults(given, config)


def _with_defaults(given: dict[str, Any], config: Fields) -> Fields:
    left_out = {key: value for key, value in _DEFAULTS.items() if given.get(key) is None}
    return Fields({**given, **left_out}, config.path)


def _ropes(text: Fields, dims: int, context: int) -> tuple[RopeSpec, RopeSpec]:
    """The rotary embeddings of near and of far layers; only the far ones are ever scaled."""
    parameters = text.section("rope_parameters")
    near = parameters.section("sliding_attention").everything()
    far = parameters.section("full_attention").everything()
    parameters.finish()
    far = {**far, **text.section("rope_scaling").everything()}
    near_base = text.positive("rope_local_base_freq", _NEAR_BASE)
    far_base = text.positive("rope_theta", _FAR_BASE)
    return (
        rope_from_parameters(text, near, dims, context, near_base),
        rope_from_parameters(text, far, dims, context, far_base),
    )


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    layer = layer_from_gguf(fields, checkpoint, context, "half")
    dims = fields.whole("rope.dimension_count", layer.head_dim)
    fields.only("rope.dimension_count_swa", dims)
    far = dataclasses.replace(layer, attention_scale=scale_from_gguf(fields, layer, _LAYERS_OF_27B))
    near_rope = RopeSpec(fields.positive("rope.freq_base_swa", _NEAR_BASE), dims, "half")
    window = fields.whole("attention.sliding_window", 0, low=0)
    near = dataclasses.replace(far, window=window, rope=near_rope)
    # Without a window all layers are of the far kind.
    is_near = near_layers_from_gguf(fields, _FULL_EVERY)
    stack = tuple(near if n and window else far for n in is_near)
    softcap = cap(fields, "final_logit_softcapping")
    return model_from_gguf(fields, checkpoint, "gemma3", stack, softcap)


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    return one_plus(ends(spec), layers(spec, block), layers(spec, qk_norm_names))
