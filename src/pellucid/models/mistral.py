"""Mistral (Jiang et al. 2023): Llama, where a token sees only the last `sliding_window` ones.

Its GGUF files have architecture `llama` and no key for the window, so they are read as Llama.
"""

from __future__ import annotations

import dataclasses

from pellucid.core.spec import ModelSpec
from pellucid.models import llama
from pellucid.models.fields import Fields
from pellucid.models.llama import layer_from_config, model_from_config, window_from_config

GGUF_ARCHITECTURES = ()
HF_ARCHITECTURES = ("MistralForCausalLM",)

enter, decoder_layer, leave = llama.enter, llama.decoder_layer, llama.leave
tensors, spec_from_gguf = llama.tensors, llama.spec_from_gguf

_FIRST_WINDOW = 4096  # of the first model, and of a configuration that does not say


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    window = window_from_config(config, _FIRST_WINDOW)
    layer = dataclasses.replace(layer_from_config(config, context), window=window)
    config.only("attention_bias", False)
    return model_from_config(config, "mistral", (layer,) * config.layers("num_hidden_layers"))
