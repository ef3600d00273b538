"""Qwen3 against transformers: a norm on every query and key head."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .gguf_twin import Recipe
from .runner import (
    Case,
    FamilySuite,
    changed,
    dropped,
    window_off_by,
    wrong_rope_sign,
    zero_logits,
)
from .test_llama import BASE
from .test_qwen2 import keys

GGUF = Recipe("qwen3", keys)
FAULTS = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "no norms": dropped("blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"),
    "an unscaled norm": changed("blk.1.attn_k_norm.weight", np.ones_like),
}


class TestQwen3(FamilySuite):
    CASES: ClassVar = {
        "plain": Case("Qwen3Config", BASE, FAULTS, GGUF),
        "tied, biased": Case(
            "Qwen3Config",
            {**BASE, "tie_word_embeddings": True, "attention_bias": True, "head_dim": 32},
            {"a dropped bias": dropped("blk.0.attn_output.bias")},
            GGUF,
            seed=1,
            llama_cpp_differs="it knows no biases of Qwen3 and refuses the file",
        ),
        "windows in the last layer": Case(
            "Qwen3Config",
            {**BASE, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
            {"a window longer by one": window_off_by(1)},
            seed=2,
            not_in_gguf="window",
        ),
    }
