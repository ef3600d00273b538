"""The machine's peaks: the best that was seen counts, whatever became of the file meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pellucid.engine.machine import machine_peaks, remember_peaks
from pellucid.ops.native.peaks import Peaks


def test_what_is_fresh_is_taken_as_it_is(tmp_path: Path) -> None:
    first = machine_peaks(1, tmp_path)
    assert min(first.read_bytes_per_second, first.int8_operations_per_second) > 0
    assert machine_peaks(1, tmp_path) == first


def rewritten(folder: Path, **changes: float) -> None:
    """What is kept, with some of it changed."""
    path = folder / "machine.json"
    kept = json.loads(path.read_text())
    (record,) = kept.values()
    record |= changes
    path.write_text(json.dumps(kept))


def test_old_figures_are_measured_again_and_the_best_sinks_slowly(tmp_path: Path) -> None:
    first = machine_peaks(1, tmp_path)
    wrong = {"read_bytes_per_second": 1e30, "int8_operations_per_second": 1.0}
    hours, now = 3600.0, first.measured_at
    rewritten(tmp_path, measured_at=now - 600, **wrong)
    again = machine_peaks(1, tmp_path)
    assert again.measured_at > now - 600
    assert again.best_since == first.best_since
    assert 0.95e30 < again.read_bytes_per_second < 1e30
    assert again.int8_operations_per_second > 1
    assert machine_peaks(1, tmp_path) == again
    rewritten(tmp_path, measured_at=now - 6 * hours, best_since=now - 90 * hours, **wrong)
    half = machine_peaks(1, tmp_path)
    assert half.read_bytes_per_second == pytest.approx(0.5e30, rel=0.05)
    assert half.best_since == pytest.approx(half.measured_at - 48 * hours)
    rewritten(tmp_path, measured_at=now - 50 * hours, **wrong)
    anew = machine_peaks(1, tmp_path)
    assert anew.read_bytes_per_second < 1e20
    assert anew.best_since == anew.measured_at


def test_what_a_benchmark_measured_counts_too(tmp_path: Path) -> None:
    weights = 70 << 20
    first = machine_peaks(1, tmp_path, weights)
    peaks = Peaks(2 * first.read_bytes_per_second, 1.0, 3 * first.f32_operations_per_second)
    remember_peaks(1, peaks, 1 << 20, 0.5, tmp_path)  # read from the caches
    assert machine_peaks(1, tmp_path, weights) == first
    remember_peaks(1, peaks, weights, 0.5, tmp_path)
    found = machine_peaks(1, tmp_path, weights)
    assert found.read_bytes_per_second == peaks.read
    assert found.int8_operations_per_second == pytest.approx(
        first.int8_operations_per_second, rel=1e-3
    )
    assert found.f32_operations_per_second == peaks.f32
    assert found.best_since == first.best_since


@pytest.mark.parametrize("spoilt", ["", "[]", "{", '{"%s": 3}', '{"%s": {"threads": 1}}'])
def test_a_spoilt_file_is_replaced(tmp_path: Path, spoilt: str) -> None:
    machine_peaks(1, tmp_path)
    path = tmp_path / "machine.json"
    (key,) = json.loads(path.read_text())
    path.write_text(spoilt.replace("%s", key))
    assert machine_peaks(1, tmp_path).read_bytes_per_second > 0
    assert key in json.loads(path.read_text())
