"""Llama against transformers: every kind of scaled rotary embedding, and its GGUF form."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import gguf
import numpy as np

from pellucid.core.spec import LayerSpec

from .gguf_twin import Recipe, State, common_keys, interleaved
from .runner import (
    Case,
    FamilySuite,
    changed,
    dropped,
    wrong_layer,
    wrong_rope_sign,
    wrong_spec,
    zero_logits,
)


def convert(state: State, config: Any) -> State:
    """Rows of Q and K in the order of the paper; Llama 3.1's frequencies as a tensor."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    turned = {
        name: next((interleaved(array, n) for part, n in heads.items() if part in name), array)
        for name, array in state.items()
    }
    if config.rope_parameters["rope_type"] == "llama3":
        turned["rope_freqs.weight"] = llama3_factors(config)
    return turned


def llama3_factors(config: Any) -> np.ndarray[Any, Any]:
    """What each frequency is divided by, one at a time by Llama 3.1's rule."""
    rope, factors = config.rope_parameters, []
    low, high = (rope[f"{end}_freq_factor"] for end in ("low", "high"))
    for i in range(0, config.head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / config.head_dim)
        turns = rope["original_max_position_embeddings"] / wavelength
        if turns > high:
            factors.append(1.0)
        elif turns < low:
            factors.append(rope["factor"])
        else:
            kept = (turns - low) / (high - low)
            factors.append(1 / ((1 - kept) / rope["factor"] + kept))
    return np.array(factors, np.float32)


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    common_keys(writer, config)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)
    rope_keys(writer, config)


def rope_keys(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if "attention_factor" in rope:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])


GGUF = Recipe("llama", keys, convert)

FAULTS = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "another epsilon": wrong_spec(norm_eps=1e-3),
    "an unscaled norm": changed("blk.1.ffn_norm.weight", np.ones_like),
    "attention unscaled": wrong_layer(
        lambda layer: dataclasses.replace(layer, attention_scale=1.0)
    ),
}

BASE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}


def with_rope(**changes: Any) -> Any:
    """A fault: the scaling of every layer changed."""

    def change(layer: LayerSpec) -> LayerSpec:
        assert layer.rope is not None and layer.rope.scaling is not None
        scaling = dataclasses.replace(layer.rope.scaling, **changes)
        return dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, scaling=scaling))

    return wrong_layer(change)


def without_scaling(layer: LayerSpec) -> LayerSpec:
    assert layer.rope is not None
    return dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, scaling=None))


def scaled(
    *,
    faults: Any,
    gguf: Recipe | None = GGUF,
    stepwise: bool = False,
    llama_cpp_differs: str = "",
    not_in_gguf: str = "",
    **rope: Any,
) -> Case:
    """A case far past the original context of 24."""
    rope.setdefault("rope_theta", 500.0)
    settings: dict[str, Any] = {**BASE, "max_position_embeddings": 96, "rope_parameters": rope}
    if rope["rope_type"] in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = 24
    else:
        settings["max_position_embeddings"] = 24
    faults = {"no scaling": wrong_layer(without_scaling), **faults}
    return Case(
        "LlamaConfig",
        settings,
        faults,
        gguf,
        lengths=(7, 90),
        stepwise=stepwise,
        llama_cpp_differs=llama_cpp_differs,
        not_in_gguf=not_in_gguf,
    )


YARN = {"rope_type": "yarn", "factor": 4.0}


class TestLlama(FamilySuite):
    CASES: ClassVar = {
        "plain": Case("LlamaConfig", BASE, FAULTS, GGUF),
        "biased, tied, as many kv heads": Case(
            "LlamaConfig",
            {
                **BASE,
                "attention_bias": True,
                "mlp_bias": True,
                "tie_word_embeddings": True,
                "num_key_value_heads": 6,
                "num_hidden_layers": 3,
            },
            {
                "a dropped bias of K": dropped("blk.0.attn_k.bias"),
                "a dropped bias of the output": dropped("blk.2.attn_output.bias"),
                "a dropped bias of the gate": dropped("blk.1.ffn_gate.bias"),
            },
            GGUF,
            seed=1,
        ),
        "linear": scaled(
            rope_type="linear", factor=4.0, faults={"another factor": with_rope(factor=4.01)}
        ),
        "dynamic": scaled(
            rope_type="dynamic",
            factor=4.0,
            gguf=None,
            not_in_gguf="dynamic scaling",
            stepwise=True,
            faults={"one position late": with_rope(original_context=25)},
        ),
        "llama3": scaled(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            faults={"another ramp": with_rope(high_freq_factor=4.1)},
        ),
        "yarn": scaled(**YARN, faults={"attention unsharpened": with_rope(attention_factor=1.0)}),
        "yarn, everything said": scaled(
            **YARN,
            beta_fast=3.0,
            beta_slow=0.5,
            attention_factor=1.3,
            faults={"another ramp": with_rope(beta_slow=1.0)},
            llama_cpp_differs="it leaves these keys out for Llama",
        ),
        "yarn, weighed as DeepSeek does": scaled(
            **YARN,
            mscale=0.7,
            mscale_all_dim=1.1,
            gguf=None,  # nor a key for these
            faults={"its own sharpness": with_rope(attention_factor=None)},
        ),
    }
