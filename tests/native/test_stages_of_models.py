"""Every family cut between its layers: the bits of the whole, on both backends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid.core.plan import Plan, Span
from pellucid.models.stage import Stage, even_ranges
from pellucid.ops import backend
from pellucid.ops.step import lower
from pellucid.ops.vocabulary import Ops
from tests.native.families import CONFIGS, tiny_model

PLANS = (
    Plan((Span(0, 0, tuple(range(40)), (0, 1, 2), 0), Span(1, 0, (5, 6, 7), (3,), 2)), 16),
    Plan((Span(0, 40, (8, 9), (0, 1, 2), 2), Span(1, 3, (1,), (3,), 1)), 16),
)


@pytest.mark.parametrize("name", ["reference", "native"])
@pytest.mark.parametrize("architecture", CONFIGS)
def test_a_cut_changes_no_bit(architecture: str, name: str) -> None:
    ops: Ops = backend(name) if name == "reference" else backend(name, threads=1)
    whole = tiny_model(architecture, ops)
    spec, weights, family = whole.spec, whole.weights, whole.family
    stages = [
        Stage(spec, layers, ops, weights, family, 64) for layers in even_ranges(spec.n_layers, 2)
    ]
    cache = ops.new_cache(spec, 4, 16)
    caches = [ops.new_cache(stage.spec, 4, 16) for stage in stages]
    for plan in PLANS:
        step = lower(plan, cache)
        expected = np.array(ops.to_numpy(whole.logits(step)))
        rows = None
        for stage, own in zip(stages, caches, strict=True):
            rows = stage.forward(dataclasses.replace(step, cache=own), rows)
        assert rows is not None
        assert rows.tobytes() == expected.tobytes()
