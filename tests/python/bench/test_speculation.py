"""What the benchmark of speculation makes of times: drift cancels, held up steps do not count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pellucid.bench.speculation import _between, _steady_seconds


def test_a_machine_that_becomes_slower_steadily_changes_no_ratio() -> None:
    seconds = [1.1**i for i in range(9)]
    assert _between(seconds) == pytest.approx([1.0] * 4)
    seconds[3] /= 2
    assert _between(seconds) == pytest.approx([1.0, 2.0, 1.0, 1.0])


def test_a_step_that_was_held_up_does_not_count() -> None:
    rows_and_seconds = [(1, 1.0), (1, 9.0), (3, 2.0), (1, 1.0), (1, 1.0), (3, 2.0), (1, 1.0)]
    start, records = 0.0, []
    for rows, seconds in rows_and_seconds:
        spans = (SimpleNamespace(n_tokens=rows),)
        records.append(cast("Any", SimpleNamespace(start=start, spans=spans)))
        start += seconds
    # The last step has none after it that would tell when it ended.
    assert _steady_seconds(records) == pytest.approx(4 * 1.0 + 2 * 2.0)
