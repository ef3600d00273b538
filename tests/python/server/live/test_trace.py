"""Recordings: saved, read again, and made Chrome traces by that format's rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid import AsyncLLM
from pellucid.core.errors import BadInput, FormatError
from pellucid.engine.client import LocalClient
from pellucid.server.events import dumps
from pellucid.server.live.about import about_json
from pellucid.server.live.recording import Recorder, read_recording
from pellucid.server.live.trace import PHASES, chrome_trace
from tests.python.cli.conftest import Ended, command
from tests.python.engine.conftest import DEFAULTS
from tests.python.server.live.test_live import ask, settled
from tests.python.server.running import Running

__all__ = ["command"]  # a fixture

Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def live(tiny_path: Path) -> Iterator[Running]:
    llm = AsyncLLM(tiny_path, **DEFAULTS)
    running = Running(LocalClient(llm))
    yield running
    running.close()
    llm.close()


@pytest.fixture
def recorded(live: Running, tmp_path: Path) -> Path:
    """A recording of three requests."""
    path = tmp_path / "recording.json"
    recorder = Recorder(path)
    hub = live.app.state.hub
    about = dumps(about_json(live.client._llm.about(), "tiny", False))
    live.call(recorder.start, hub, about)
    live.until(lambda: recorder._last is not None)  # it looks: from here on, spans too
    for name in "one", "two", "three":
        ask(live, name)
        settled(live, name)
    future = asyncio.run_coroutine_threadsafe(recorder.finish(hub), live._loop)
    future.result(60)
    return path


def check_trace(trace: dict[str, Any]) -> None:
    """The rules of the Trace Event Format that its viewers rely on."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["ts"], int | float) and event["ts"] >= 0
        match event["ph"]:
            case "X":
                assert event["dur"] >= 0 and isinstance(event["cat"], str)
                lane = lanes.setdefault((event["pid"], event["tid"]), [])
                lane.append((event["ts"], event["ts"] + event["dur"]))
            case "M":
                assert event["name"] in ("process_name", "thread_name")
                assert isinstance(event["args"]["name"], str)
            case "C":
                assert all(isinstance(v, int | float) for v in event["args"].values())
            case other:
                raise AssertionError(f"an event of phase {other!r}")
    for lane in lanes.values():  # within a thread, events are apart or nested
        open_: list[float] = []
        for begin, end in sorted(lane, key=lambda event: (event[0], -event[1])):
            while open_ and open_[-1] <= begin + 1e-4:
                open_.pop()
            assert not open_ or end <= open_[-1] + 1e-4
            open_.append(end)


def test_a_recording_has_every_step_with_its_spans_and_its_own_cost(recorded: Path) -> None:
    found = read_recording(recorded)
    assert found["version"] == 1 and found["about"]["model"]["layers"] == 2
    records = found["records"]
    steps = [step["id"] for step in records["steps"]]
    assert steps == list(range(steps[0], steps[0] + len(steps))) and len(steps) >= 27
    names = {request["id"].split(".")[0]: request for request in records["requests"]}
    assert {"one", "two", "three"} <= names.keys()
    assert names["three"]["state"] == "finished" and names["three"]["sent"] is not None
    spanned = {span["step"] for span in records["spans"]}
    first, last = names["one"]["steps"][1], names["three"]["steps"][1]
    assert set(range(first, last + 1)) <= spanned
    own = found["recording"]
    assert own["steps"] == len(steps) and own["dropped"] == own["steps_let_go"] == 0
    assert own["cpu_s"] > 0
    assert records["dropped"] == 0


def test_a_trace_follows_the_rules_of_its_format(recorded: Path) -> None:
    found = read_recording(recorded)
    trace = json.loads(json.dumps(chrome_trace(found)))
    check_trace(trace)
    names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {"forward", "sample", "prefill", "decode", "send", "norm"} <= set(names)
    assert sum(name.startswith("step ") for name in names) == len(found["records"]["steps"])
    ids = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {request["id"] for request in found["records"]["requests"]} <= ids
    assert set(PHASES) <= set(found["records"]["steps"][0]["ms"])


def test_before_the_first_step_there_is_a_trace_too() -> None:
    records = {"steps": [], "requests": [], "spans": [], "dropped": 0}
    trace = chrome_trace({"about": {"model": {"name": "tiny"}}, "records": records})
    check_trace(trace)
    assert all(event["ph"] == "M" for event in trace["traceEvents"])


def test_the_rules_find_what_breaks_them() -> None:
    def event(ts: float, dur: float) -> dict[str, Any]:
        return {"ph": "X", "name": "a", "cat": "b", "ts": ts, "dur": dur, "pid": 1, "tid": 1}

    with pytest.raises(AssertionError):
        check_trace({"traceEvents": [event(0, 5), event(3, 4)], "displayTimeUnit": "ms"})
    check_trace({"traceEvents": [event(0, 5), event(3, 2)], "displayTimeUnit": "ms"})


def test_the_server_gives_both(live: Running) -> None:
    ask(live, "given")
    settled(live, "given")
    answer = live.http.get("/live/recording")
    assert "attachment" in answer.headers["Content-Disposition"]
    whole = answer.json()
    assert whole["version"] == 1 and whole["records"]["steps"] and whole["about"]["tensors"]
    check_trace(live.http.get("/live/trace").json())


def test_a_recorder_keeps_the_last_steps_and_counts_the_others(
    live: Running, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path / "short.json", steps=5)
    hub = live.app.state.hub
    live.call(recorder.start, hub, b"{}")
    live.until(lambda: recorder._last is not None)
    ask(live, "short")
    settled(live, "short")
    asyncio.run_coroutine_threadsafe(recorder.finish(hub), live._loop).result(60)
    found = read_recording(tmp_path / "short.json")
    assert len(found["records"]["steps"]) == 5
    own = found["recording"]
    assert own["steps_let_go"] == found["records"]["dropped"] > 0


def test_the_command_writes_a_trace(command: Command, recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    ended = command("trace", str(recorded), str(out))
    assert ended.code == 0, ended.err
    check_trace(json.loads(out.read_text()))


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{}", '{"version": 2}', '{"version": 1, "records": {"steps": 3}}', "[" * 9999],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"wrong\.json"):
        read_recording(path)


def test_records_of_another_form_are_refused(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(
        '{"version": 1, "about": {}, "records": {"steps": [{"x": 1}], "requests": [], "spans": []}}'
    )
    ended = command("trace", str(path), str(tmp_path / "out.json"))
    assert ended.code == 2
    assert "odd.json" in ended.err and ended.err.count("\n") == 1


def spoilt(recording: dict[str, Any], value: Any) -> Iterator[dict[str, Any]]:
    """The recording with one of its numbers replaced, of each kind that there is."""
    text = json.dumps(recording)
    kinds = {
        "step": ["start"],
        "ms": ["schedule", "forward"],
        "request": ["received", "finished", "sent"],
        "span": ["start", "ms"],
    }
    for kind, names in kinds.items():
        for name in names:
            copy = json.loads(text)
            step = copy["records"]["steps"][1]
            one = {
                "step": step,
                "ms": step["ms"],
                "request": copy["records"]["requests"][0],
                "span": copy["records"]["spans"][0],
            }[kind]
            one[name] = value
            yield copy


@pytest.mark.parametrize("value", [-1, -1e308, 1e308, 10**400, float("nan"), "x", None, [], 1e6])
def test_a_spoilt_recording_gives_a_sound_trace_or_one_line(
    command: Command, recorded: Path, tmp_path: Path, value: object
) -> None:
    path, out = tmp_path / "spoilt.json", tmp_path / "out.json"
    for one in spoilt(json.loads(recorded.read_text()), value):
        path.write_text(json.dumps(one))
        ended = command("trace", str(path), str(out))
        if ended.code == 0:
            check_trace(json.loads(out.read_text(), parse_constant=pytest.fail))
        else:
            assert ended.code == 2
            assert "spoilt.json" in ended.err and ended.err.count("\n") == 1


def test_a_path_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        Recorder(tmp_path / "file" / "recording.json")
    with pytest.raises(BadInput, match="cannot be read"):
        read_recording(tmp_path / "nothing.json")
