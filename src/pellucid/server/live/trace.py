"""Recordings as Chrome traces, which Perfetto and chrome://tracing open.

The format: "Trace Event Format" (Duffy et al., Google), the JSON object form. Times are
microseconds. Used here: complete events ("X": ts, dur), metadata ("M"), counters ("C").
Events of one thread that overlap must be nested; so every part ends no later than what it is in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_ENGINE, _REQUESTS = 1, 2
_STEPS: Final = 1
# The parts of a step in the order in which they are done, as docs/records.md has them.
PHASES: Final = ("schedule", "draft", "prepare", "forward", "sample", "post")

Json = Mapping[str, Any]


def chrome_trace(recording: Json) -> dict[str, Any]:
    """A recording's steps with their phases and spans, its requests, and what waited and ran."""
    records = recording["records"]
    steps: Sequence[Json] = sorted(records["steps"], key=lambda step: float(step["start"]))
    requests: Sequence[Json] = records["requests"]
    zero = _first(steps, requests)
    spans: dict[int, list[Json]] = {}
    for span in records["spans"]:
        spans.setdefault(span["step"], []).append(span)
    events: list[dict[str, Any]] = list(_names(requests))
    ends = [*(step["start"] for step in steps), math.inf][1:]  # of no steps none
    for step, end in zip(steps, ends, strict=True):
        events += _of_step(step, spans.get(step["id"], []), zero, (end - zero) * 1e6)
    for lane, request in enumerate(requests, 1):
        events += _of_request(request, lane, zero)
    about = recording["about"]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "producer": "pellucid",
            "model": str(about["model"]["name"]),
            "dropped": str(records["dropped"]),
        },
    }


def _first(steps: Sequence[Json], requests: Sequence[Json]) -> float:
    """When all of it begins, on the records' clock."""
    begins = [step["start"] for step in steps]
    for request in requests:
        begins += [at for name in ("received", "queued") if (at := request[name]) is not None]
    return min(begins, default=0.0)


def _names(requests: Sequence[Json]) -> Iterator[dict[str, Any]]:
    yield _name("process_name", "engine", _ENGINE)
    yield _name("thread_name", "steps", _ENGINE, _STEPS)
    yield _name("process_name", "requests", _REQUESTS)
    for lane, request in enumerate(requests, 1):
        yield _name("thread_name", request["id"], _REQUESTS, lane)


def _name(what: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": {"name": str(name)}}


def _of_step(
    step: Json, spans: Sequence[Json], zero: float, limit: float
) -> Iterator[dict[str, Any]]:
    """It ends before `limit`, when the next one begins."""
    ms = step["ms"]
    begin = (step["start"] - zero) * 1e6
    parts = [(name, max(0.0, 1000 * (ms.get(name) or 0.0))) for name in PHASES]
    end = min(begin + sum(took for _, took in parts), limit)
    kinds = sorted({part["kind"] for part in step["batch"]})
    yield _complete(
        f"step {step['id']}",
        begin,
        end,
        end,
        category=",".join(kinds) or "step",
        args={
            "sequences": len(step["batch"]),
            "tokens": sum(part["tokens"] for part in step["batch"]),
            "cost": step["cost"],
            "checks": step["checks"],
        },
    )
    at = begin
    for name, took in parts:
        if took > 0:
            yield _complete(name, at, at + took, end, category="phase")
            if name == "forward":
                yield from _of_spans(spans, zero, at, min(at + took, end))
        at += took
    queue = step["queue"]
    counts = {"running": queue["running"], "waiting": queue["waiting"]}
    yield _counter("sequences", begin, counts)
    pages = {name: step["pages"][name] for name in ("owned", "cached", "free")}
    yield _counter("pages", begin, pages)


def _of_spans(
    spans: Sequence[Json], zero: float, begin: float, end: float
) -> Iterator[dict[str, Any]]:
    at = begin
    for span in spans:
        start = max(at, (span["start"] - zero) * 1e6)
        at = min(max(start, start + 1000 * span["ms"]), end)
        args = {name: span[name] for name in ("layer", "operations", "bytes", "path")}
        yield _complete(span["op"], start, at, end, category="op", args=args)


def _of_request(request: Json, lane: int, zero: float) -> Iterator[dict[str, Any]]:
    """Its time from the socket to the last byte, as far as it has come."""
    marks = [
        ("arrive", request["received"]),
        ("queue", request["queued"]),
        ("prefill", request["started"]),
        ("decode", request["first_token"]),
        ("send", request["finished"]),
        ("", request["sent"]),
    ]
    named = [(name, (at - zero) * 1e6) for name, at in marks if at is not None]
    if len(named) < 2:
        return
    # In their order, whatever the recording says.
    times = itertools.accumulate((at for _, at in named), max)
    known = [(name, at) for (name, _), at in zip(named, times, strict=True)]
    begin, end = known[0][1], known[-1][1]
    args = {name: request[name] for name in ("state", "prompt_tokens", "output_tokens")}
    yield _complete(
        request["id"], begin, end, end, category="request", args=args, pid=_REQUESTS, tid=lane
    )
    for (name, start), (_, stop) in itertools.pairwise(known):
        yield _complete(name, start, stop, end, category="part", pid=_REQUESTS, tid=lane)


def _complete(
    name: str,
    begin: float,
    end: float,
    limit: float,
    *,
    category: str,
    args: Json | None = None,
    pid: int = _ENGINE,
    tid: int = _STEPS,
) -> dict[str, Any]:
    """An event from `begin` to `end`, within what ends at `limit`."""
    begin = round(max(0.0, min(begin, limit)), 3)
    return {
        "ph": "X",
        "name": str(name) or "?",
        "cat": category,
        "ts": begin,
        "dur": max(0.0, round(round(min(end, limit), 3) - begin, 3)),
        "pid": pid,
        "tid": tid,
        "args": dict(args or {}),
    }


def _counter(name: str, at: float, values: Mapping[str, float]) -> dict[str, Any]:
    return {
        "ph": "C", "name": name, "ts": round(max(0.0, at), 3), "pid": _ENGINE, "tid": 0,
        "args": {name: value + 0 for name, value in values.items()},  # numbers, or they are refused
    }  # fmt: skip
