"""Qwen3-MoE against transformers: many small experts, shares normalised or not, dense layers."""

from __future__ import annotations

from typing import Any, ClassVar

import gguf

from .gguf_twin import Recipe, State
from .runner import Case, FamilySuite, dropped, window_off_by, wrong_layer
from .test_llama import BASE
from .test_mixtral import FAULTS, shares_as_they_are, with_stacked_experts
from .test_qwen2 import keys as qwen_keys


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    qwen_keys(writer, config)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def convert(state: State, config: Any) -> State:
    stacked = with_stacked_experts(state, "mlp.experts")
    return {
        f"model.{name}" if name.startswith("layers.") else name: array
        for name, array in stacked.items()
    }


GGUF = Recipe("qwen3moe", keys, convert)
SETTINGS = {
    **BASE,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
}


class TestQwen3Moe(FamilySuite):
    CASES: ClassVar = {
        "plain": Case(
            "Qwen3MoeConfig",
            SETTINGS,
            {
                **FAULTS,
                "no norms": dropped("blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"),
            },
            GGUF,
        ),
        "shares as the router gives them": Case(
            "Qwen3MoeConfig",
            {**SETTINGS, "norm_topk_prob": False, "attention_bias": True},
            {
                "shares that sum to 1": wrong_layer(shares_as_they_are),
                "a dropped bias": dropped("blk.1.attn_q.bias"),
            },
            seed=1,
        ),
        "dense layers between, a window": Case(
            "Qwen3MoeConfig",
            {
                **SETTINGS,
                "num_hidden_layers": 4,
                "decoder_sparse_step": 2,
                "mlp_only_layers": [3],
                "use_sliding_window": True,
                "sliding_window": 6,
            },
            {"a window longer by one": window_off_by(1)},
            seed=2,
            not_in_gguf="dense",
        ),
    }
