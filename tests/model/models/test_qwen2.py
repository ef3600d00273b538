"""Qwen2 against transformers: the bias on Q, K and V, and windows in the later layers."""

from __future__ import annotations

from typing import Any, ClassVar

import gguf

from .gguf_twin import Recipe, common_keys
from .runner import Case, FamilySuite, dropped, window_off_by, wrong_rope_sign, zero_logits
from .test_llama import BASE, rope_keys, with_rope


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    common_keys(writer, config)
    rope_keys(writer, config)


GGUF = Recipe("qwen2", keys)
SETTINGS: dict[str, Any] = {**BASE, "head_dim": None}
SETTINGS.pop("head_dim")  # the family has no key for it

FAULTS = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "a dropped bias of Q": dropped("blk.0.attn_q.bias"),
    "a dropped bias of K": dropped("blk.1.attn_k.bias"),
    "a dropped bias of V": dropped("blk.0.attn_v.bias"),
}
WINDOWED = {**SETTINGS, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 5}
SHIFTED = {"a window longer by one": window_off_by(1)}


class TestQwen2(FamilySuite):
    CASES: ClassVar = {
        "plain": Case("Qwen2Config", SETTINGS, FAULTS, GGUF),
        "tied": Case(
            "Qwen2Config",
            {**SETTINGS, "tie_word_embeddings": True, "num_key_value_heads": 1},
            {"a dropped bias of K": dropped("blk.1.attn_k.bias")},
            GGUF,
            seed=1,
        ),
        "windows from the second layer": Case(
            "Qwen2Config",
            {**WINDOWED, "max_window_layers": 1},
            SHIFTED,
            seed=2,
            not_in_gguf="window",
        ),
        "windows where the types say": Case(
            "Qwen2Config",
            {
                **WINDOWED,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            SHIFTED,
            seed=3,
            not_in_gguf="window",
        ),
        "yarn": Case(
            "Qwen2Config",
            {
                **SETTINGS,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 1000.0,
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                },
            },
            {"attention unsharpened": with_rope(attention_factor=1.0)},
            GGUF,
            lengths=(50,),
            seed=4,
        ),
    }
