"""A recorded log: one JSON object a line, a request each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pellucid.core.errors import BadInput
from pellucid.simulate.lengths import MOST
from pellucid.simulate.traffic import MOST_REQUESTS, Job, Recorded

_TIMES = ("arrival_s", "timestamp", "arrival", "received")
_FORM = 'each line is as {"arrival_s": 0.5, "prompt_tokens": 120, "output_tokens": 80}'


def read_log(lines: Iterable[str | bytes], name: str) -> Recorded:
    """`arrival_s` (or `timestamp`, `received`; seconds on any clock), `prompt_tokens` and
    `output_tokens` of each request; `prefix` (any text that names a common beginning) and
    `prefix_tokens` where prompts begin alike. Raises `BadInput` with the number of the line."""
    jobs: list[Job] = []
    texts: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name}: line {number}"
        if len(jobs) == MOST_REQUESTS:
            raise BadInput(f"{where}: a log may have {MOST_REQUESTS} requests: cut it")
        jobs.append(_job(_object(line, where), where, texts))
    if not jobs:
        raise BadInput(f"{name}: there is no request in it: {_FORM}")
    jobs.sort(key=lambda job: job.at)
    began = jobs[0].at
    return Recorded(tuple(job._replace(at=job.at - began) for job in jobs))


def _object(line: str | bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInput(f"{where} is no JSON: {_FORM}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{where} is no object: {_FORM}")
    return found


def _job(found: dict[str, Any], where: str, texts: dict[str, int]) -> Job:
    time = next((found[name] for name in _TIMES if name in found), None)
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < 1e15:
        raise BadInput(f"{where}: it has no time of arrival in seconds: {_FORM}")
    prompt = _tokens(found, "prompt_tokens", where)
    output = _tokens(found, "output_tokens", where)
    shared = 0
    if "prefix" in found:
        shared = min(_tokens(found, "prefix_tokens", where), prompt)
    text = texts.setdefault(str(found.get("prefix", "")), len(texts))
    return Job(float(time), prompt, output, shared, text)


def _tokens(found: dict[str, Any], field: str, where: str) -> int:
    value = found.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise BadInput(f"{where}: {field} must be a whole number from 1 to {MOST}, not {value!r}")
    return value
