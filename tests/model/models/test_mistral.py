"""Mistral against transformers: the window, past it; its GGUF form is Llama's and has none."""

from __future__ import annotations

from typing import ClassVar

from .runner import Case, FamilySuite, window_off_by, wrong_rope_sign, zero_logits
from .test_llama import BASE, GGUF

FAULTS = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "a window longer by one": window_off_by(1),
    "a window shorter by one": window_off_by(-1),
}


class TestMistral(FamilySuite):
    CASES: ClassVar = {
        "a window of 7": Case(
            "MistralConfig", {**BASE, "sliding_window": 7}, FAULTS, lengths=(7, 8, 40)
        ),
        "a window of 1": Case(
            "MistralConfig",
            {**BASE, "sliding_window": 1},
            {"a window longer by one": window_off_by(1)},
            seed=1,
        ),
        "no window": Case(
            "MistralConfig",
            {**BASE, "sliding_window": None, "num_key_value_heads": 3},
            {"one wrong rope sign": wrong_rope_sign},
            GGUF,
            seed=2,
        ),
    }
