"""Our logits of every GGUF twin against llama.cpp's, kept in answers/ (see write_models.py)."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.ops.reference import ReferenceOps

from ..runner import Built, Case, Float32, assert_agree, run
from .write_models import asked_positions, cases

CASES = dict(cases())
ANSWERS = Path(__file__).parent / "answers"

# What is left of the float16 table below: an argument that a rounding in the seventh digit moves
# to the table's next entry.
NEXT_ENTRY = 4.0


class TabulatedGelu(ReferenceOps):
    """GELU as llama.cpp has it: by tanh for every model, MPT too, from a table of float16. Without
    this, agreement is to that type's 11 bits (5e-3 where it is 1e-5 with it)."""

    def gelu_tanh(self, x: Float32) -> Float32:
        argument = x.astype(np.float16).astype(np.float32)
        entry = super().gelu_tanh(argument).astype(np.float16).astype(np.float32)
        return np.where(x <= -10, np.float32(0), np.where(x >= 10, x, entry))

    def gelu(self, x: Float32) -> Float32:
        return self.gelu_tanh(x)


GELU_SUITES = ("TestGPT2", "TestBloom", "TestMPT", "TestGemma", "TestGemma2", "TestGemma3")


@cache
def answers(suite: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ANSWERS / f"{suite}.json").read_text())
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_gguf_twin_agrees_with_llama_cpp(name: str, tmp_path: Path) -> None:
    case: Case = CASES[name]
    suite, case_name = name.split(": ", 1)
    answer = answers(suite).get(case_name)
    assert answer is not None, "llama.cpp was not asked about this case: run write_models.py"
    built = Built(case, tmp_path)
    tokens = built.tokens(max(case.lengths))
    assert answer["tokens"] == tokens, "answers/ is older than the case: run write_models.py"
    positions = asked_positions(len(tokens))
    theirs = np.array([answer["logits"][str(p)] for p in positions], np.float32)
    model, slack = built.gguf_model, 1.0
    if suite in GELU_SUITES:
        model, slack = dataclasses.replace(model, ops=TabulatedGelu()), NEXT_ENTRY
    assert_agree(run(model, tokens)[positions], theirs, model.spec, name, slack)
