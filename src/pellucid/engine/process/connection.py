"""Connection: one child process from its start to its end, seen from an event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, cast

from pellucid.core.errors import PellucidError, Unavailable
from pellucid.costs import StepCosts
from pellucid.engine.apart import id_there, own_id
from pellucid.engine.async_stream import Letter
from pellucid.engine.client import ModelInfo
from pellucid.engine.process.frames import Frames, pack
from pellucid.engine.process.host import ENGINE_FAILED, Opening
from pellucid.engine.process.launch import launch
from pellucid.engine.process.letters import Failure, Fields, increment_of, records_of
from pellucid.engine.process.news import News
from pellucid.engine.records import Cursor, EngineAbout, Records, costs_of
from pellucid.engine.request import Request
from pellucid.engine.stats import EngineStats

logger = logging.getLogger("pellucid.engine")

_REAPING_S = 5.0  # that a child may take to end once its socket has
_EXPLAINING_S = 0.25  # that those who wait may be kept waiting to be told why


class Receiver(Protocol):
    """Where the letters of a request go."""

    def receive(self, letter: Letter) -> None: ...

    def lost(self, error: PellucidError) -> None:
        """There will be no letters, since there is no child any more."""


class Connection(asyncio.Protocol):
    """A child process, and what waits for it. Belongs to one event loop.

    `ended` is set when the child is gone, `reason` says how. Every receiver and every call that was
    waiting has been told by then.
    """

    process: subprocess.Popen[bytes]

    def __init__(self, note: Callable[[str], None]) -> None:
        self.ended = asyncio.Event()
        self.reason = "the engine process has ended"
        self._ready: asyncio.Future[ModelInfo] = asyncio.get_running_loop().create_future()
        self._note = note
        self._frames = Frames()
        self._receivers: dict[int, Receiver] = {}
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._news = News(self._send)
        self._channels = itertools.count(1)
        self._costs: StepCosts | None = None
        self._closing = False
        self._unsent: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, opening: Opening, note: Callable[[str], None]
    ) -> tuple[Connection, ModelInfo]:
        """A child that is ready. Raises what made it fail, `PellucidError` if it just ended."""
        self = cls(note)
        try:
            self.process, sock = await asyncio.to_thread(launch)
        except OSError as error:
            raise PellucidError(f"the engine process does not start: {error}") from error
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=sock)
        self._send(opening)
        try:
            return self, await self._ready
        except BaseException:
            self.kill()
            await self.ended.wait()
            raise

    @property
    def is_open(self) -> bool:
        """Whether requests can be added."""
        return not (self.ended.is_set() or self._closing)

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._receivers)

    def add(self, request: Request, receiver: Receiver) -> int | None:
        """Have `request` answered. Returns its channel; None, and `receiver` is told, if the child
        is gone."""
        if not self.is_open:
            receiver.lost(Unavailable("the engine process has ended: ask again"))
            return None
        channel = next(self._channels)
        self._receivers[channel] = receiver
        # Over there an id is free a step after its request was cut: ours are free at once.
        self._send(("add", channel, replace(request, id=id_there(request.id, channel))))
        return channel

    def cut(self, channel: int, *, listening: bool = False) -> None:
        """End a request; nothing more is received of it, or what it has, if still `listening`."""
        known = channel in self._receivers
        if not listening:
            self._receivers.pop(channel, None)
        if known:
            self._send(("cut", channel))

    def give_up(self, channel: int) -> None:
        """If there was no end yet of a request that was cut, this is it."""
        self._refuse(channel, Unavailable("the engine process does not answer: ask again"))

    async def call(self, method: str, arguments: Mapping[str, Any]) -> Any:
        """What a method of the child's AsyncLLM returns. Raises what it raises. Whoever leaves off
        waiting ends it there too."""
        return await self._ask("call", method, arguments)

    async def stats(self) -> EngineStats:
        stats: EngineStats = await self._ask("stats")
        return stats

    async def records(self, cursor: Cursor, stamps_every: float | None) -> Records:
        return records_of(await self._ask("records", cursor, stamps_every), own_id)

    async def about(self) -> EngineAbout:
        about: EngineAbout = await self._ask("about")
        return about

    async def news(self, cursor: Cursor, stamps_every: float | None) -> Records:
        """As `EngineClient.news`."""
        if not self.is_open:
            raise Unavailable("the engine process has ended: ask again")
        if self._costs is None:
            self._costs = costs_of(await self.about())
        told = await self._news.next(cursor, stamps_every)
        return records_of(told, own_id, self._costs)

    def kill(self) -> None:
        """End the child, whatever it does."""
        self._closing = True
        if self.process.poll() is None:
            self.process.kill()

    async def close(self) -> None:
        """End the child, and return when it has ended."""
        self._closing = True
        self._transport.close()
        await self.ended.wait()

    async def _ask(self, kind: str, *arguments: Any) -> Any:
        if not self.is_open:
            raise Unavailable("the engine process has ended: ask again")
        channel = next(self._channels)
        reply = asyncio.get_running_loop().create_future()
        self._replies[channel] = reply
        self._send((kind, channel, *arguments))
        try:
            return await reply
        finally:
            self._replies.pop(channel, None)
            if kind == "call" and reply.cancelled():
                self._send(("cut", channel))

    def _send(self, message: Any) -> None:
        """With whatever else is sent in this turn of the event loop: of many requests at once each
        would else wake the child."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(pack(message))

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not self._transport.is_closing():
            self._transport.write(b"".join(unsent))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is of another class

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            if isinstance(message, list):
                self._deliver(message)
            else:
                self._hear(*message)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True  # whoever comes now is told at once
        task = asyncio.get_running_loop().create_task(self._bury())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _deliver(self, letters: list[tuple[int, Fields | Failure]]) -> None:
        receivers = self._receivers
        for channel, letter in letters:
            receiver = receivers.get(channel)
            if isinstance(letter, Failure):
                self._refuse(channel, letter.error())
            elif receiver is not None:
                increment = increment_of(letter)
                if increment.metrics is not None:
                    del receivers[channel]
                receiver.receive(increment)

    def _refuse(self, channel: int, error: PellucidError) -> None:
        receiver = self._receivers.pop(channel, None)
        if receiver is not None:
            receiver.receive(error)
        reply = self._replies.get(channel)
        if reply is not None and not reply.done():
            reply.set_exception(error)

    def _hear(self, kind: str, *rest: Any) -> None:
        match kind:
            case "news":
                self._news.receive(rest[0])
            case "note":
                self._note(rest[0])
            case "ready" if not self._ready.done():
                self._ready.set_result(rest[0])
            case "failed" if not self._ready.done():
                self._ready.set_exception(rest[0].error())
            case "reply":
                reply = self._replies.get(rest[0])
                if reply is not None and not reply.done():
                    reply.set_result(rest[1])

    async def _bury(self) -> None:
        """The socket has ended: see to it that the process has too, and tell everybody."""
        reaping = asyncio.wrap_future(_reaped(self.process))
        done, _ = await asyncio.wait([reaping], timeout=_EXPLAINING_S)
        if done:
            self.reason = await reaping
        self._tell_all()
        self.reason = await reaping
        if not self._ready.done():
            self._ready.set_exception(PellucidError(f"{self.reason} before it was ready"))
        self.ended.set()

    def _tell_all(self) -> None:
        error = Unavailable(f"{self.reason}: ask again")
        self._news.lost(error)
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.lost(error)
        for reply in list(self._replies.values()):
            if not reply.done():
                reply.set_exception(error)


def _reaped(process: subprocess.Popen[bytes]) -> Future[str]:
    """What `_reap` will say; in a thread of its own, since those that are shared may be busy."""
    found: Future[str] = Future()
    threading.Thread(
        target=lambda: found.set_result(_reap(process)), name="pellucid-reaper", daemon=True
    ).start()
    return found


def _reap(process: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a child whose socket has ended, and say how it came."""
    try:
        code = process.wait(_REAPING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code == ENGINE_FAILED:
        return "the engine failed and its process has ended"
    if code >= 0:
        return f"the engine process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"the engine process was ended by signal {-code} ({name})"
