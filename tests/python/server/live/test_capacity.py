"""The forecast of an engine that serves: of its own limits, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid import AsyncLLM
from pellucid.capacity.fit import Calibration, Error
from pellucid.capacity.kept import keep
from pellucid.engine.client import LocalClient
from pellucid.server.live import capacity
from pellucid.simulate.pace import Pace
from pellucid.simulate.setup import Path as Between
from pellucid.simulate.times import TERMS
from tests.python.engine.conftest import DEFAULTS
from tests.python.server.running import Running

STEP = 0.02


@pytest.fixture(scope="module")
def serving(tiny_path: Path) -> Iterator[Running]:
    llm = AsyncLLM(tiny_path, **DEFAULTS)
    running = Running(LocalClient(llm))
    yield running
    running.close()
    llm.close()


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes 20 ms, whatever it computes."""
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    keys: list[str] = []
    real = capacity.key_of

    def noted(*arguments: Any) -> str:
        keys.append(real(*arguments))
        each = (STEP, *(0.0,) * (len(TERMS) - 1))
        keep(keys[-1], Calibration(each, Pace(), Between(0.004), Error(0.1, 0.1, 0.2), 100, 2.0))
        return keys[-1]

    monkeypatch.setattr(capacity, "key_of", noted)


def test_the_forecast_is_of_this_engine(serving: Running, calibrated: None) -> None:
    asked = {"prompt": "8", "output": "4", "replicas": "2"}
    found = serving.http.get("/live/capacity", params=asked).raise_for_status().json()
    assert found["mark"] == "simulated"
    assert found["step_times"] == "calibrated"
    assert found["error"]["step"] == 0.1
    assert found["mix"] == {"prompt": 8, "output": 4, "shared": 0.0, "replicas": 2}
    # Two engines, each with a token for every place in each step at the most.
    places = serving.http.get("/live/about").json()["limits"]["max_num_seqs"]
    most = found["saturation"]["tokens_per_second"]
    assert 0.5 * 2 * places / STEP < most <= 2 * places / STEP
    light = found["curve"][0]
    assert light["ttft"]["p50"]["mean"] == pytest.approx(STEP + 0.004, abs=STEP)
    assert light["itl"]["p50"]["mean"] == pytest.approx(STEP)
    assert light["keeps_up"]
    again = serving.http.get("/live/capacity", params=asked).json()
    assert again == found


def test_without_step_times_it_says_so(
    serving: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    found = serving.http.get("/live/capacity", params={"prompt": "9"}).json()
    assert "step times are not known" in found["missing"]
    assert found["mix"]["prompt"] == 9
    assert "curve" not in found


@pytest.mark.parametrize(
    ("name", "value"),
    [("prompt", "0"), ("prompt", "x"), ("output", "1e99"), ("shared", "2"), ("shared", "nan"),
     ("replicas", "17"), ("replicas", "-1")],
)  # fmt: skip
def test_what_is_out_of_range_is_named(serving: Running, name: str, value: str) -> None:
    refused = serving.http.get("/live/capacity", params={name: value})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == name


def test_one_that_takes_too_long_is_ended(
    serving: Running, calibrated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "_SECONDS", 0.0)
    refused = serving.http.get("/live/capacity", params={"prompt": "7", "output": "4"})
    assert refused.status_code == 503
    assert "took longer" in refused.json()["error"]["message"]
    assert refused.headers["Retry-After"] == "20"
    # Whoever can wait is told the same as no failure: a page that asks again has none in its log.
    prefer = {"Prefer": "respond-async"}
    asked = {"prompt": "7", "output": "4"}
    later = serving.http.get("/live/capacity", params=asked, headers=prefer)
    assert (later.status_code, later.headers["Retry-After"]) == (202, "20")
    assert later.headers["Preference-Applied"] == "respond-async"
    assert later.json() == refused.json()
    monkeypatch.undo()
    # Who asks next has an answer, or a refusal of his own: nothing is left of the one before.
    assert serving.http.get("/live/capacity", params={"prompt": "0"}).status_code == 400
