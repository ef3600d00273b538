"""The validation of plans: the pace as it was is that of the steps that served."""

from __future__ import annotations

from typing import Any

import plan_validation
import pytest
from plan_validation import Known, Seen, Turn, measured, simulated

from pellucid.capacity.client import Heard
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.scheduling import Limits
from pellucid.simulate.draws import draws
from pellucid.simulate.setup import Setup
from pellucid.simulate.times import TERMS, Fitted
from pellucid.simulate.traffic import Job

SPEC = ModelSpec("llama", 64, 500, 512, 1e-5, (LayerSpec(4, 4, 16, 64, 0.25),))
TIMES = Fitted(SPEC, (0.01, *(0.0,) * (len(TERMS) - 1)))  # each step takes 10 ms


def record(number: int, start: float, wait: float, step: float, running: int) -> dict[str, Any]:
    span = {"sequence": 1, "context": 5 + number, "tokens": 1, "logits": 1}
    ms = {"wait": 1000 * wait, "wall": 1000 * (wait + step)}
    queue = {"running": running, "waiting": 0}
    return {"id": number, "start": start, "ms": ms, "queue": queue, "batch": [span]}


def slow_steps(turn: Turn, begin: float, count: int) -> None:
    """`count` steps of 15 ms, one after the other."""
    turn.records.append(record(0, turn.start + begin - 0.2, 0, 0.01, 0))
    for i in range(count):
        start = turn.start + begin + 0.015 * i
        turn.records.append(record(i + 1, start, 0.19 if not i else 0.0, 0.015, 1))


def test_the_known_pace_is_that_of_its_steps() -> None:
    turn = Turn([Job(0.0, 4, 4)], start=50.0)
    slow_steps(turn, 1.0, 20)
    known = Known(turn, TIMES).played(draws(1, 1))
    assert known.seconds(0.3, 0.01) == pytest.approx(0.01)  # nothing ran
    assert known.seconds(1.1, 0.01) == pytest.approx(0.015)
    assert known.seconds(0.99, 0.02) == pytest.approx(0.01 + 0.015)
    assert known.seconds(5.0, 0.01) == pytest.approx(0.01)  # after the last
    assert turn.whole
    del turn.records[5]
    assert not turn.whole


def test_a_run_with_the_known_pace_is_what_was_seen() -> None:
    jobs = [Job(1.0 + 0.4 * i, 4, 5) for i in range(4)]
    turn = Turn(jobs, start=50.0)
    slow_steps(turn, 1.0, 200)
    for job in jobs:
        asked = turn.start + job.at
        times = [asked + 0.015 * (i + 1) for i in range(5)]
        turn.heard.append(Heard(asked, times, tokens=5))
    limits = Limits(512, 4, 64, 64, 16, prefix_caching=False)
    setup = Setup(limits, TIMES)
    seen = measured([turn, turn])
    found = simulated(setup, [turn, turn], 0, [Known(turn, TIMES)] * 2)
    assert found.rate == pytest.approx(seen.rate, rel=0.1)
    assert found.ttft.p50 == pytest.approx(seen.ttft.p50, rel=1e-3)
    assert found.itl.p95 == pytest.approx(seen.itl.p95, rel=1e-3)
    even = simulated(setup, [turn], 0, [setup.pace])
    assert even.itl.p50 == pytest.approx(0.01)


def test_what_is_off_by_more_than_is_allowed_is_not_within() -> None:
    class Delays:
        p50 = 0.1

    def seen(rate: float) -> Seen:
        return Seen(rate, Delays(), Delays())  # type: ignore[arg-type]

    row = plan_validation._row("tokens/s", 0.1, seen(100), [seen(110), seen(114)], seen(101), None)
    assert row["off"] == pytest.approx(0.12)
    assert not row["within"]
    assert row["known_pace_off"] == pytest.approx(0.01)
    assert row["scatter"] == pytest.approx(2.83, abs=0.01)
