"""A calibration from the command line: a real server in a process of its own, its steps measured,
and the plan that is made of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.capacity.serving import served
from tests.python.cli.conftest import Ended, command  # noqa: F401 - a fixture
from tests.python.engine.tiny import write_model

LOAD = ("--prompt-tokens", "8", "--output-tokens", "4", "--requests", "20", "--seeds", "2",
        "--max-num-seqs", "4", "--threads", "1", "--processes", "1", "--no-what-if", "--json",
        "--price", "0.5")  # fmt: skip


def test_a_plan_of_this_machine(
    command: Callable[..., Ended],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pellucid.capacity.observe._TRAFFIC_S", 0.2)
    model = str(write_model(tmp_path / "tiny.gguf"))
    guessed = command("plan", model, *LOAD)
    assert guessed.code == 0, guessed.err
    found = json.loads(guessed.out)
    assert found["machine"]["step_times"] == "peaks measured here"
    assert any("--calibrate" in warning for warning in found["warnings"])
    measured = command("plan", model, *LOAD, "--calibrate")
    assert measured.code == 0, measured.err
    found = json.loads(measured.out)
    assert "calibrated on" in measured.err
    assert found["machine"]["step_times"] == "calibrated"
    assert found["machine"]["calibration"]["steps"] >= 60
    assert found["saturation"]["requests_per_second"] > 0
    assert found["saturation"]["cost"]["usd_per_million_answer_tokens"] > 0
    kept = json.loads(command("plan", model, *LOAD).out)  # found again, without measuring
    assert kept["machine"]["calibration"] == found["machine"]["calibration"]


def test_a_server_that_cannot_start_says_why(
    command: Callable[..., Ended],  # noqa: F811
    tmp_path: Path,
) -> None:
    model = write_model(tmp_path / "tiny.gguf")
    try:
        with served(model, ["--kv-cache-dtype", "f7"]):
            raise AssertionError("it started")
    except Exception as error:
        assert "does not start" in str(error)
        assert "f7" in str(error)
