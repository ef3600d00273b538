"""Who has something to do and ends no step hangs; who has nothing to do does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pellucid import PellucidError
from pellucid.distributed.progress import Progress
from pellucid.engine.stats import EngineStats

IDLE = EngineStats(*(12 * (0,)))
BUSY = replace(IDLE, running_sequences=1, steps=5)


def test_an_engine_that_ends_no_step_hangs() -> None:
    progress = Progress(10.0, 0.0)
    progress.check(BUSY, 100.0)
    progress.check(BUSY, 110.0)
    with pytest.raises(PellucidError, match="no step for 10 s"):
        progress.check(BUSY, 110.5)


def test_steps_and_leisure_are_no_hanging() -> None:
    progress = Progress(10.0, 0.0)
    for number in range(50):
        progress.check(replace(BUSY, steps=number), 9.0 * number)
    progress.check(IDLE, 1000.0)
    progress.check(BUSY, 5000.0)  # it has just begun
    progress.check(BUSY, 5009.0)
