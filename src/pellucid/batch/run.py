"""A batch on its way: many lines in flight, each written as it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pellucid.batch.identity import LineId, chance_of
from pellucid.batch.index import id_of
from pellucid.batch.output import Output
from pellucid.batch.source import Asked
from pellucid.core.errors import PellucidError
from pellucid.server.errors import ApiError
from pellucid.server.events import dumps
from pellucid.server.offline import Offline, Reply, refused
from pellucid.server.service import Caller


@dataclass(frozen=True, slots=True)
class Manner:
    """How lines are answered. `model` and `settings` are digests, for ids; `in_flight` lines are
    answered at once; `seed` decides what would be drawn at random."""

    model: bytes
    settings: bytes
    seed: int
    in_flight: int
    lenient: bool = False


@dataclass(slots=True)
class Tally:
    """What was written. `failed` lines are among the `lines`."""

    lines: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, reply: Reply) -> None:
        """A line was written."""
        self.lines += 1
        self.failed += reply.error is not None
        used = reply.body.get("usage", {})
        self.prompt_tokens += used.get("prompt_tokens", 0)
        self.completion_tokens += used.get("completion_tokens", 0)

    def take(self, other: Tally) -> None:
        """What `other` counts was written too."""
        self.lines += other.lines
        self.failed += other.failed
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens


@dataclass(slots=True)
class Answering:
    """Answers single lines."""

    offline: Offline
    manner: Manner
    _again: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def line(self, asked: Asked) -> tuple[bytes, Reply]:
        """The line of OUT, and the reply that is in it. Raises `PellucidError` when the engine is
        gone."""
        own = id_of(asked, self.manner.model, self.manner.settings)
        reply = await self._reply(asked, own)
        return dumps(_written(asked, own, reply)) + b"\n", reply

    async def _reply(self, asked: Asked, own: LineId) -> Reply:
        """The reply to a line. One that the engine failed at is asked once more, when no other is:
        a step that fails ends every request of the moment, and one of them may be to blame."""
        reply = await self._try(asked, own)
        if reply.status == 500:
            async with self._again:
                reply = await self._try(asked, own)
        if reply.error is not None and reply.status == 503:
            raise PellucidError(
                f"line {asked.number}: {reply.error.message}; give the same command again, which "
                "does the rest"
            )
        return reply

    async def _try(self, asked: Asked, own: LineId) -> Reply:
        if isinstance(asked.request, ApiError):
            return refused(asked.request)
        caller = Caller(own.request_id, chance=chance_of(self.manner.seed, own.key))
        line = asked.request.model_copy(deep=True)  # a body is used up
        return await self.offline.answer(line, caller, lenient=self.manner.lenient)


@dataclass(slots=True)
class Run:
    """Answers lines into `output`. `on_line` is called as each is on the disk."""

    offline: Offline
    output: Output
    manner: Manner
    on_line: Callable[[], None] = lambda: None
    tally: Tally = field(default_factory=Tally)

    async def answer(self, lines: Iterator[Asked]) -> None:
        """Answer `lines`. What has ended is written, also when this is cancelled or fails.

        Raises `PellucidError` when the engine is gone or OUT cannot be written, and what `lines`
        raises.
        """
        writer = _Writer(self.output)
        answering = Answering(self.offline, self.manner)
        workers = [
            asyncio.create_task(self._work(answering, lines, writer))
            for _ in range(self.manner.in_flight)
        ]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await writer.close()
        for worker in done:
            worker.result()

    async def _work(self, answering: Answering, lines: Iterator[Asked], writer: _Writer) -> None:
        for asked in lines:  # the workers share them
            line, reply = await answering.line(asked)
            await writer.write(line)
            self.tally.add(reply)
            self.on_line()


class _Writer:
    """Appends lines off the event loop: those that end while others are being written go
    together."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, line: bytes) -> None:
        """Returns when the line is on the disk. Raises as `Output.append`."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((line, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._drain())
        await written

    async def close(self) -> None:
        """What was given is on the disk, also where nobody waits for it any more, or has failed."""
        if self._writing is not None:
            await self._writing

    async def _drain(self) -> None:
        while self._waiting:
            lines, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._output.append, b"".join(line for line, _ in lines))
            except PellucidError as error:
                _settle(lines, error)
            else:
                _settle(lines, None)


def _settle(lines: list[tuple[bytes, asyncio.Future[None]]], error: PellucidError | None) -> None:
    for _, written in lines:
        if written.done():  # nobody waits any more
            continue
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)


def _written(asked: Asked, own: LineId, reply: Reply) -> dict[str, Any]:
    """A line of OUT; what it begins with is `output.BEGINNING`."""
    error = reply.error
    return {
        "id": str(own),
        "custom_id": asked.custom_id,
        "response": {
            "status_code": reply.status,
            "request_id": own.request_id,
            "body": reply.body,
        },
        "error": None if error is None else {"code": error.code, "message": error.message},
    }
