"""Phi-3 against transformers: fused products, LongRoPE on both sides of the original context,
partial rotation, the window."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gguf
import numpy as np

from pellucid.models.registry import Model

from .gguf_twin import Recipe, State
from .runner import (
    Case,
    FamilySuite,
    Fault,
    changed,
    window_off_by,
    wrong_rope_sign,
    zero_logits,
)
from .test_llama import BASE, with_rope


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = config.rope_parameters
    head_dim = config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_sliding_window(config.sliding_window or 0)
    if rope["rope_type"] == "longrope":
        stretch = config.max_position_embeddings / config.original_max_position_embeddings
        log_original = math.log(config.original_max_position_embeddings)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / log_original))


def convert(state: State, config: Any) -> State:
    if config.rope_parameters["rope_type"] != "longrope":
        return state
    factors = {
        f"rope_factors_{which}.weight": np.array(config.rope_parameters[f"{which}_factor"])
        for which in ("short", "long")
    }
    return {**state, **factors}


GGUF = Recipe("phi3", keys, convert)
SETTINGS: dict[str, Any] = {
    **{key: value for key, value in BASE.items() if key != "head_dim"},
    "original_max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LONG = {
    **SETTINGS,
    "max_position_embeddings": 128,
    "original_max_position_embeddings": 32,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.3, 1.2],
        "long_factor": [1.1, 2.5, 4.0, 5.5],
    },
}


def gate_and_up_exchanged(model: Model) -> Model:
    def exchange(fused: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate(np.split(fused, 2)[::-1])

    return changed("blk.0.ffn_up.weight", exchange)(model)


FAULTS: dict[str, Fault] = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "gate and up exchanged": gate_and_up_exchanged,
}
SHORT = tuple(LONG["rope_parameters"]["short_factor"])


class TestPhi3(FamilySuite):
    CASES: ClassVar = {
        "plain": Case("Phi3Config", SETTINGS, FAULTS, GGUF),
        "within a window": Case(
            "Phi3Config",
            {**SETTINGS, "sliding_window": 6},
            {"a window shorter by one": window_off_by(-1)},
            GGUF,
            seed=1,
            llama_cpp_differs="it reads Phi-3's window and leaves it out",
        ),
        "partly turned, tied, as Phi-4-mini": Case(
            "Phi3Config",
            {
                **SETTINGS,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "tie_word_embeddings": True,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.75,
                },
            },
            {"one wrong rope sign": wrong_rope_sign},
            GGUF,
            seed=2,
        ),
        # Transformers chooses by the length of the sequence, we by the length asked for.
        "long, beyond the original": Case(
            "Phi3Config",
            LONG,
            {
                "the short factors": with_rope(factors=SHORT),
                "attention unsharpened": with_rope(attention_factor=1.0),
            },
            GGUF,
            lengths=(33, 60),
            context=128,
            seed=3,
        ),
        "long, within the original": Case(
            "Phi3Config",
            {**LONG, "max_position_embeddings": 1024, "original_max_position_embeddings": 256},
            {"another short factor": with_rope(factors=(1.0, 1.1, 1.31, 1.2))},
            GGUF,
            lengths=(5, 32),
            context=256,
            seed=3,
        ),
    }
