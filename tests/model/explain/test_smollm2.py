"""`pellucid explain` on the default model, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.explain.inside import look_inside
from pellucid.formats import open_checkpoint
from pellucid.models.registry import load_model
from pellucid.ops.reference import ReferenceOps
from tests.model.models.runner import run

PROMPT = "Michael Jordan played the sport of"


@pytest.fixture(scope="module")
def answer(smollm2_path: Path) -> Any:
    arguments = ["explain", str(smollm2_path), PROMPT, "--follow", " basketball", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", *arguments, "--tokens", "8", "--hardware", "h100"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_documented_example(answer: Any) -> None:
    assert [token["text"] for token in answer["prompt"]] == [
        "Michael", " Jordan", " played", " the", " sport", " of",
    ]  # fmt: skip
    seen = answer["computed"]
    assert len(seen["lens"]) == 31
    assert seen["followed"]["text"] == " basketball"
    # It rises through the layers: from the middle of 49,152 tokens to among the first hundred.
    ranks = [row["followed_rank"] for row in seen["lens"]]
    assert ranks[0] > 5000
    assert ranks[-1] < 100
    assert ranks[-1] == min(ranks)
    # The head that is shown looks at what the question is about.
    weights = seen["attention"]["weights"]
    assert answer["prompt"][int(np.argmax(weights))]["text"] == " sport"


def test_kv_bytes_by_the_formula_with_this_models_numbers(answer: Any) -> None:
    kv = answer["here"]["kv_cache"]
    assert kv["trouble"] is None
    (term,) = kv["terms"]
    assert term["formula"] == "2 x 30 x 3 x 64 x 13 x 2"
    assert kv["bytes_allocated"] == kv["bytes_of_pages"] == 2 * 30 * 3 * 64 * 16 * 2


def test_one_token_of_decode_is_bound_by_memory_everywhere(answer: Any) -> None:
    assert answer["here"]["decode"]["predicted"]["limited_by"] == "memory"
    assert answer["elsewhere"]["decode"]["limited_by"] == "memory"
    cost = answer["here"]["decode"]["predicted"]["cost"]
    assert cost["weights_read"] == pytest.approx(answer["model"]["weight_bytes"], rel=1e-3)


def test_a_watched_pass_gives_the_references_own_scores(smollm2_path: Path) -> None:
    tokens = [27647, 14531, 4944, 260, 7807, 282]
    with open_checkpoint(smollm2_path) as checkpoint:
        inside = look_inside(checkpoint, tokens, 2048)
        whole = run(load_model(checkpoint, ReferenceOps(), context=2048), tokens)
    np.testing.assert_allclose(inside.lens[-1], whole[-1], rtol=1e-4, atol=1e-4)
