"""The machine's peaks: the best that was seen counts, whatever became of the file meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pellucid.engine.machine import machine_peaks


def test_what_is_fresh_is_taken_as_it_is(tmp_path: Path) -> None:
    first = machine_peaks(1, tmp_path)
    assert min(first.read_bytes_per_second, first.int8_operations_per_second) > 0
    assert machine_peaks(1, tmp_path) == first


def test_old_figures_are_measured_again_and_the_best_of_each_is_kept(tmp_path: Path) -> None:
    machine_peaks(1, tmp_path)
    path = tmp_path / "machine.json"
    kept = json.loads(path.read_text())
    (record,) = kept.values()
    record |= {
        "measured_at": 1.0,
        "read_bytes_per_second": 1e30,
        "int8_operations_per_second": 1.0,
    }
    path.write_text(json.dumps(kept))
    again = machine_peaks(1, tmp_path)
    assert again.measured_at > 1
    assert again.read_bytes_per_second == 1e30
    assert again.int8_operations_per_second > 1
    assert machine_peaks(1, tmp_path) == again


@pytest.mark.parametrize("spoilt", ["", "[]", "{", '{"%s": 3}', '{"%s": {"threads": 1}}'])
def test_a_spoilt_file_is_replaced(tmp_path: Path, spoilt: str) -> None:
    machine_peaks(1, tmp_path)
    path = tmp_path / "machine.json"
    (key,) = json.loads(path.read_text())
    path.write_text(spoilt.replace("%s", key))
    assert machine_peaks(1, tmp_path).read_bytes_per_second > 0
    assert key in json.loads(path.read_text())
