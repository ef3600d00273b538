"""Recordings: what an engine did for a while, in one JSON object that the pages open.

    {"version": 1, "about": ..., "records": ..., "recording": its own cost and losses}

An armed recording keeps the last steps of a run with all their spans, in memory, and writes them
now and then and at the end: whole or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any, Final

from pellucid.core.errors import BadInput, FormatError, PellucidError
from pellucid.core.record import RequestRecord, StepRecord
from pellucid.engine.records import EngineAbout, Records
from pellucid.server.events import dumps
from pellucid.server.live.hub import Hub
from pellucid.server.live.window import REQUESTS, Window

logger = logging.getLogger("pellucid.server")

VERSION: Final = 1
STEPS: Final = 8192  # about 60 MB at a batch of 8
_WRITE_EVERY_S: Final = 30.0
_LARGEST: Final = 1 << 30  # of a file that is read


def recording(about: bytes, records: bytes, own: dict[str, Any]) -> bytes:
    """The whole object, of JSON that is there."""
    return b'{"version":%d,"about":%s,"records":%s,"recording":%s}' % (
        VERSION,
        about,
        records,
        dumps(own),
    )


def read_recording(path: Path) -> dict[str, Any]:
    """A recording from a file. Raises `BadInput` or `FormatError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise BadInput(f"{path}: above {_LARGEST >> 30} GiB, which no recording is")
        found = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(path, "the file", "is no recording: it is no JSON") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise FormatError(path, "version", f"is not {VERSION}: this is no recording of this form")
    records = found.get("records")
    parts = ("steps", "requests", "spans")
    if not isinstance(records, dict) or not all(isinstance(records.get(p), list) for p in parts):
        raise FormatError(path, "records", f"has no {', '.join(parts)}")
    return found


def _refuse_constant(name: str) -> float:
    """NaN and infinities, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is no JSON")


class Recorder:
    """Takes what the hub sees, from `start` to `finish`, and writes it to `path`.

    Raises `BadInput` at once for a path that cannot be written.
    """

    def __init__(self, path: Path, steps: int = STEPS) -> None:
        self.path = path
        self._steps: deque[StepRecord] = deque(maxlen=steps)
        self._requests: OrderedDict[str, RequestRecord] = OrderedDict()
        self._about = b"null"
        self._last: Records | None = None
        self._n_steps = self._dropped = 0
        self._began = time.time()
        self._cpu_s = 0.0
        self._task: asyncio.Task[None] | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab"):
                pass
        except OSError as error:
            raise BadInput(f"--record {path}: cannot be written: {error.strerror}") from error

    def start(self, hub: Hub, about: bytes) -> None:
        """Begin, in the running event loop. `about` is what `/live/about` says."""
        self._about = about
        self._task = asyncio.get_running_loop().create_task(self._keep(hub))

    async def finish(self, hub: Hub) -> None:
        """Write the end of it."""
        if self._task is not None:
            with contextlib.suppress(PellucidError):  # an engine that has ended tells no more
                await hub.look()
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._write(hub)

    def take(self, records: Records) -> None:
        """More of it; the oldest goes where there is too much."""
        began, began_before = time.thread_time(), self._last is not None
        if self._last is not None and records.cursor.epoch != self._last.cursor.epoch:
            self._steps.clear()  # another engine: its steps are numbered anew
            self._requests.clear()
        self._last = records
        self._n_steps += len(records.steps)
        self._dropped += records.dropped if began_before else 0
        self._steps.extend(records.steps)
        for request in records.requests:
            self._requests[request.id] = request
            self._requests.move_to_end(request.id)
        while len(self._requests) > REQUESTS:
            self._requests.popitem(last=False)
        self._cpu_s += time.thread_time() - began

    async def _keep(self, hub: Hub) -> None:
        with hub.listener(self.take):
            while True:
                await asyncio.sleep(_WRITE_EVERY_S)
                await self._write(hub)

    async def _write(self, hub: Hub) -> None:
        if self._last is None or hub.known is None:
            return
        steps, requests = list(self._steps), list(self._requests.values())
        try:
            await asyncio.to_thread(self._write_whole, hub, hub.known, steps, requests)
        except OSError as error:
            logger.error("the recording %s could not be written: %s", self.path, error)

    def _write_whole(
        self,
        hub: Hub,
        known: EngineAbout,
        steps: list[StepRecord],
        requests: list[RequestRecord],
    ) -> None:
        assert self._last is not None
        began = time.thread_time()
        whole = Records(steps, requests, self._last.stats, 0, self._last.cursor, hub.stages)
        window = Window(known, hub.journeys, steps=len(steps) + 1, all_spans=True, ids=hub.ids)
        parts = window.take(whole, watching=False)
        lost = self._n_steps - len(steps)
        records = parts.message(self._dropped + lost, known.epoch, spans=True)
        self._cpu_s += time.thread_time() - began
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            temporary.write_bytes(recording(self._about, records, self.own(lost)))
            temporary.replace(self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def own(self, lost: int) -> dict[str, Any]:
        """What the recording itself cost, and what it lost."""
        return {
            "began": self._began,
            "ended": time.time(),
            "steps": self._n_steps - lost,
            "steps_let_go": lost,
            "dropped": self._dropped,
            "cpu_s": round(self._cpu_s, 4),
        }
