"""Our logits of every GGUF twin against llama.cpp's, kept in answers/ (see write_models.py)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..runner import Built, Case, assert_agree, run
from .write_models import asked_positions, cases

CASES = dict(cases())
ANSWERS = Path(__file__).parent / "answers"

# llama.cpp looks GELU up in a table of float16: with it, agreement is to that type's 11 bits.
GELU_SUITES = ("TestGPT2", "TestBloom", "TestMPT", "TestGemma", "TestGemma2", "TestGemma3")
FLOAT16_TABLE = 40.0


@cache
def answers(suite: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ANSWERS / f"{suite}.json").read_text())
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_gguf_twin_agrees_with_llama_cpp(name: str, tmp_path: Path) -> None:
    case: Case = CASES[name]
    suite, case_name = name.split(": ", 1)
    answer = answers(suite)[case_name]
    built = Built(case, tmp_path)
    tokens = built.tokens(max(case.lengths))
    assert answer["tokens"] == tokens, "answers/ is older than the case: run write_models.py"
    positions = asked_positions(len(tokens))
    theirs = np.array([answer["logits"][str(p)] for p in positions], np.float32)
    ours = run(built.gguf_model, tokens)[positions]
    slack = FLOAT16_TABLE if suite in GELU_SUITES else 1.0
    assert_agree(ours, theirs, built.gguf_model.spec, name, slack)
