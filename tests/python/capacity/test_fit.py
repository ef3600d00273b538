"""From steps to a cost model: least squares without negative terms, and what it makes of steps
whose times are known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pellucid.capacity.fit import fit
from pellucid.capacity.kept import find, keep, key_of
from pellucid.capacity.least_squares import non_negative
from pellucid.capacity.observe import Observed, Step, phases, steps_of
from pellucid.core.errors import PellucidError
from pellucid.core.record import SpanRecord
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.simulate.draws import draws
from pellucid.simulate.times import TERMS, Fitted, Windows, features

LAYER = LayerSpec(n_heads=8, n_kv_heads=2, head_dim=24, ffn_dim=64, attention_scale=1.0)
SPEC = ModelSpec("llama", 192, 500, 512, 1e-5, (LAYER,) * 4)
SLIDING = ModelSpec("gemma2", 192, 500, 512, 1e-5, (LAYER, replace(LAYER, window=64)) * 2)

numbers = st.floats(-10, 10, width=32)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_solution_meets_the_conditions_of_kuhn_and_tucker(data: st.DataObject) -> None:
    rows, terms = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    a = data.draw(arrays(np.float64, (rows, terms), elements=numbers))
    b = data.draw(arrays(np.float64, rows, elements=numbers))
    x = non_negative(a, b)
    assert (x >= 0).all()
    gradient = a.T @ (b - a @ x)
    sizes = np.maximum(np.linalg.norm(a, axis=0), 1e-30)
    scaled = gradient / sizes
    tolerance = 1e-6 * max(1.0, float(np.linalg.norm(b)))
    assert (scaled <= tolerance).all()  # no term that is held at 0 would help
    assert (np.abs(scaled[x > 0]) <= tolerance).all()  # and no other can be better


def a_step(i: int) -> tuple[SpanRecord, ...]:
    """Of any size: some that decode, perhaps a prompt."""
    luck = draws(5, 0).at(i)
    spans = [SpanRecord(k, int(luck.random() * 400), 1, 1) for k in range(int(luck.random() * 33))]
    if luck.random() < 0.4 or not spans:
        length = 1 + int(luck.random() * 300)
        spans.append(SpanRecord(99, int(luck.random() * 100), length, int(length == 1)))
    return tuple(spans)


def observed(truth: Fitted, count: int = 300, noise: float = 0.0) -> Observed:
    steps = []
    for i in range(count):
        spans = a_step(i)
        factor = 1 + noise * (2 * draws(6, 0).at(i).random() - 1)
        steps.append(Step(spans, truth.seconds(spans) * factor, f"phase {i % 5}"))
    return Observed(steps, [0.002] * 5, [0.001] * 5, frozenset(("phase 0", "phase 1")))


@pytest.mark.parametrize("spec", [SPEC, SLIDING], ids=["whole", "sliding"])
def test_what_steps_are_made_of_is_found(spec: ModelSpec) -> None:
    each = (5e-3, 1e-3, 8e-4, 2e-4, 1e-4, 9e-5, 5e-4, 2e-4, 1e-6, 2e-7, 3e-9)
    truth = Fitted(spec, each)
    found = fit(spec, observed(truth))
    times = found.times(spec)
    for i in range(1000, 1050):
        spans = a_step(i)
        assert times.seconds(spans) == pytest.approx(truth.seconds(spans), rel=1e-3)
        parts = times.parts(spans)
        assert math.fsum(parts.values()) == pytest.approx(times.seconds(spans))
    assert found.error.step < 1e-3
    assert found.path.before == pytest.approx(0.002)
    assert found.path.after == pytest.approx(0.001)
    assert found.pace.done(0.1) == pytest.approx(0.1, rel=1e-2)


def pairs(values: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return values[:-1], values[1:]


def test_noise_becomes_a_pace_and_an_error_that_is_said() -> None:
    truth = Fitted(SPEC, (5e-3, 1e-3, 8e-4, 2e-4, 1e-4, 9e-5, 5e-4, 2e-4, 1e-6, 2e-7, 3e-9))
    seen = observed(truth, 600, 0.2)
    found = fit(SPEC, seen)
    assert 0.05 < found.error.step < 0.15  # half of the noise, in the median
    assert found.error.phase < 0.05
    pace = found.pace
    rates = [
        (b - a) / (d - c) for a, b, c, d in zip(*pairs(pace.work), *pairs(pace.times), strict=True)
    ]
    assert min(rates) == pytest.approx(1 / 1.2, abs=0.05)
    assert max(rates) == pytest.approx(1 / 0.8, abs=0.08)
    times = found.times(SPEC)
    mixed = [step for step in seen.steps if step.phase in seen.mixed]
    modelled = sum(times.seconds(step.spans) for step in mixed)
    assert modelled == pytest.approx(sum(step.seconds for step in mixed))


def test_the_short_way_is_the_sum_of_the_terms() -> None:
    each = tuple(draws(1, 1).at(i).random() for i in range(len(TERMS)))
    for spec in (SPEC, SLIDING):
        times, windows = Fitted(spec, each), Windows(spec)
        for i in range(50):
            spans = a_step(i)
            whole = sum(a * b for a, b in zip(each, features(spans, windows), strict=True))
            assert times.seconds(spans) == pytest.approx(whole)
            assert times.with_kv(0.5).seconds(spans) <= times.seconds(spans)


def record(wait: float, wall: float, running: int, waiting: int = 0) -> dict[str, Any]:
    span = {"sequence": 3, "context": 9, "tokens": 1, "logits": 1}
    queue = {"running": running, "waiting": waiting}
    return {"ms": {"wait": wait, "wall": wall}, "queue": queue, "batch": [span]}


def test_who_waits_for_a_request_takes_no_time() -> None:
    records = [record(900, 905, 1), record(1, 6, 0, 1), record(2, 8, 0), record(70, 75, 2)]
    records.append(record(0.5, 4, 1) | {"ms": {"wait": None, "wall": None}})
    steps = steps_of(records, "x")
    assert [step.seconds for step in steps] == pytest.approx([0.006, 0.008, 0.005])
    assert steps[0].spans == (SpanRecord(3, 8, 1, 1),)


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(PellucidError, match="are needed"):
        fit(SPEC, observed(Fitted(SPEC, (1e-3,) * len(TERMS)), 20))


def test_a_calibration_is_kept_for_what_it_depends_on(tmp_path: File) -> None:
    found = fit(SPEC, observed(Fitted(SPEC, (1e-3,) * len(TERMS))))
    key = key_of("a processor", 2, SPEC, 1000, "f16")
    assert find(key, tmp_path) is None
    path = keep(key, found, tmp_path)
    kept = find(key, tmp_path)
    assert kept is not None
    assert kept.calibration == found
    for other in (
        key_of("another", 2, SPEC, 1000, "f16"),
        key_of("a processor", 1, SPEC, 1000, "f16"),
        key_of("a processor", 2, SPEC, 999, "f16"),
        key_of("a processor", 2, SPEC, 1000, "int8"),
    ):
        assert find(other, tmp_path) is None
    for broken in ("", "[]", "{}", json.dumps({key: 3}), path.read_text().replace("fixed", "x")):
        path.write_text(broken)
        assert find(key, tmp_path) is None


@pytest.mark.parametrize(("places", "context"), [(1, 64), (32, 8192), (3, 300)])
def test_what_is_measured_fits_the_engine(places: int, context: int) -> None:
    for phase in phases(places, context):
        assert 1 <= phase.users <= max(places, 1) + 4
        assert all(ask.prompt + ask.output <= context for ask in phase.asks)
