"""A batch over a cluster: lines go out in blocks, and one process writes what comes back.

OUT is written here alone, so that it says what is done whatever ends: an engine, a node, this
process. A block that was under way is done again, and its lines are the same again.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.batch.index import id_of
from pellucid.batch.output import Output
from pellucid.batch.run import Answering, Manner, Tally
from pellucid.batch.source import Asked
from pellucid.core.errors import PellucidError
from pellucid.distributed.shards import in_shards
from pellucid.engine.async_llm import AsyncLLM
from pellucid.engine.client import LocalClient
from pellucid.server.errors import ApiError
from pellucid.server.offline import Offline, Reply
from pellucid.server.settings import Settings


@dataclass(frozen=True, slots=True)
class Shared:
    """What every engine of a batch is told: the model, the arguments of `LLM`, what lines call the
    model, and how they are answered."""

    path: str
    arguments: dict[str, Any]
    names: tuple[str, ...]
    manner: Manner


class Answerer:
    """An engine in a worker: blocks of lines in, lines of OUT out."""

    def __init__(self, shared: Shared) -> None:
        self._llm = AsyncLLM(Path(shared.path), **shared.arguments)
        offline = Offline(LocalClient(self._llm), Settings(served_model_names=shared.names))
        self._answering = Answering(offline, shared.manner)
        self._room = asyncio.Semaphore(shared.manner.in_flight)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="pellucid-lines", daemon=True).start()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        asked = [pickle.loads(one) for one in batch["asked"]]  # noqa: S301 - from whoever started us
        answering = asyncio.run_coroutine_threadsafe(self._answer(asked), self._loop)
        lines, replies = zip(*answering.result(), strict=True)
        return {
            "line": np.array(lines, object),
            "key": np.array([_key(one) for one in asked], object),
            "failed": np.array([reply.error is not None for reply in replies]),
            "prompt_tokens": _used(replies, "prompt_tokens"),
            "completion_tokens": _used(replies, "completion_tokens"),
        }

    async def _answer(self, asked: Sequence[Asked]) -> list[tuple[bytes, Reply]]:
        return await asyncio.gather(*map(self._line, asked))

    async def _line(self, asked: Asked) -> tuple[bytes, Reply]:
        async with self._room:
            return await self._answering.line(asked)


@dataclass(slots=True)
class ShardedRun:
    """Answers lines into `output` by `engines` engines, each of which Ray counts `cpus` for.
    `on_lines` is told how many are on the disk more."""

    shared: Shared
    output: Output
    engines: int
    cpus: int
    on_lines: Callable[[int], None] = lambda n: None
    tally: Tally = field(default_factory=Tally)

    def answer(self, lines: Iterator[Asked]) -> None:
        """Answer `lines`. What has come back is written, whatever ends this. Raises as
        `Run.answer`."""
        rows = []
        for asked in lines:
            if isinstance(asked.request, ApiError):  # refused without an engine
                self._refuse(asked)
            else:
                rows.append({"asked": pickle.dumps(asked)})
        if not rows:
            return
        written: set[bytes] = set()
        blocks = in_shards(
            rows,
            Answerer,
            (self.shared,),
            engines=min(self.engines, len(rows)),
            cpus=self.cpus,
            block=self.shared.manner.in_flight,
        )
        for block in blocks:
            self._write(block, written)
        if len(written) != len(rows):
            raise PellucidError(
                f"{len(rows) - len(written)} lines did not come back; give the same command again, "
                "which does the rest"
            )

    def _refuse(self, asked: Asked) -> None:
        offline: Any = None  # a refusal needs none
        line, reply = asyncio.run(Answering(offline, self.shared.manner).line(asked))
        self.output.append(line)
        self.tally.add(reply)
        self.on_lines(1)

    def _write(self, block: dict[str, Any], written: set[bytes]) -> None:
        """Once, whatever was done twice."""
        new = [place for place, key in enumerate(block["key"]) if key not in written]
        if not new:
            return
        self.output.append(b"".join(block["line"][place] for place in new))
        written.update(block["key"][place] for place in new)
        used = (int(block[name][new].sum()) for name in ("prompt_tokens", "completion_tokens"))
        self.tally.take(Tally(len(new), int(block["failed"][new].sum()), *used))
        self.on_lines(len(new))


def _key(asked: Asked) -> bytes:
    return id_of(asked, b"", b"").key


def _used(replies: Sequence[Reply], name: str) -> np.ndarray[Any, Any]:
    return np.array([reply.body.get("usage", {}).get(name, 0) for reply in replies])
