"""Mixtral (Jiang et al. 2024): Mistral with a mixture of experts in the place of every SwiGLU.

A router sends each token to its two likeliest experts, whose shares sum to 1. Its GGUF files have
architecture `llama` and are read as Llama.
"""

from __future__ import annotations

import dataclasses

from pellucid.core.spec import ModelSpec
from pellucid.models import llama
from pellucid.models.fields import Fields
from pellucid.models.llama import (
    MAX_EXPERTS,
    layer_from_config,
    model_from_config,
    window_from_config,
)

GGUF_ARCHITECTURES = ()
HF_ARCHITECTURES = ("MixtralForCausalLM",)

enter, decoder_layer, leave = llama.enter, llama.decoder_layer, llama.leave
tensors, spec_from_gguf = llama.tensors, llama.spec_from_gguf


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    n_experts = config.whole("num_local_experts", 8, high=MAX_EXPERTS)
    layer = dataclasses.replace(
        layer_from_config(config, context, rope_base=1e6),
        window=window_from_config(config),
        n_experts=n_experts,
        n_experts_used=config.whole("num_experts_per_tok", 2, high=n_experts),
        normalize_expert_weights=True,
    )
    stack = (layer,) * config.layers("num_hidden_layers")
    return model_from_config(config, "mixtral", stack, norm_eps=1e-5)
