"""The machine's peaks are measured once and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pellucid.engine import machine


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_READ_BYTES", 1 << 20)


def test_peaks_are_measured_once_and_kept(tmp_path: Path) -> None:
    first = machine.machine_peaks(1, tmp_path)
    assert first.read_bytes_per_second > 0
    assert first.int8_operations_per_second > first.f32_operations_per_second / 100 > 0
    assert machine.machine_peaks(1, tmp_path) == first
    kept = json.loads((tmp_path / "machine.json").read_text())
    assert list(kept) == [machine._key(1, 1 << 20)]
    assert machine._key(2, 1 << 20) != machine._key(1, 1 << 20)
    assert machine._key(1, 2 << 20) != machine._key(1, 1 << 20)


def test_what_cannot_be_read_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    for wrong in "", "[]", '{"x": 1}', json.dumps({machine._key(1, 1 << 20): {"speed": 1}}):
        path.write_text(wrong)
        assert machine.machine_peaks(1, tmp_path).threads == 1
        assert machine._key(1, 1 << 20) in json.loads(path.read_text())
    nowhere = tmp_path / "machine.json" / "folder"
    assert machine.machine_peaks(1, nowhere).threads == 1
