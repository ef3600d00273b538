"""Host: the child process, an engine that does what its parent asks.

Run by `launch`. The main thread reads; the engine's thread computes and sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from pellucid.core.errors import PellucidError
from pellucid.core.logs import LogForm, log_to_stderr
from pellucid.engine.async_llm import AsyncLLM
from pellucid.engine.client import LocalClient
from pellucid.engine.process.feed import Feed
from pellucid.engine.process.frames import read_frame
from pellucid.engine.process.letters import Failure, told_of
from pellucid.engine.process.rest import at_rest
from pellucid.engine.process.wire import Channel, Postbag, Wire
from pellucid.engine.request import Request
from pellucid.hub import SilentProgress

logger = logging.getLogger("pellucid.engine")

ENGINE_FAILED: Final = 4  # the exit code of a child whose engine cannot go on

# What `call` may ask of the AsyncLLM.
CALLS: Final = frozenset(
    {
        "chances", "check_grammar", "embed", "funnel", "measure_machine", "page_map",
        "prompt_logprobs",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Opening:
    """A parent's first message: what to load, and how to log."""

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    log: LogForm | None = None


def main(descriptor: int) -> None:
    """Serve the parent at the other end of `descriptor` until it is gone."""
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the parent says when
        signal.signal(ignored, signal.SIG_IGN)
    sock = socket.socket(fileno=descriptor)
    with contextlib.suppress(EOFError):
        opening = read_frame(sock)
        if opening.log is not None:
            log_to_stderr(opening.log)
        wire = Wire(sock)
        host = _open(opening, wire)
        with at_rest():
            while host is not None:
                host.obey(read_frame(sock))
    # Not through the interpreter's end: that would wait for a step.
    os._exit(0)


def _open(opening: Opening, wire: Wire) -> Host | None:
    """The engine, ready; None, and the parent knows why, if there is none."""
    try:
        llm = AsyncLLM(opening.path, progress=_Notes(wire), **opening.arguments)
        host = Host(llm, wire)
    except Exception as error:
        if not isinstance(error, PellucidError):
            logger.exception("the engine did not start")
        wire.send(("failed", Failure.of(error)))
        return None
    wire.send(("ready", LocalClient(llm).model))
    return host


class Host:
    """Does what messages ask: ("add", channel, request), ("cut", channel), ("stats", channel),
    ("records", channel, cursor, stamps_every), ("watch", channel, cursor, stamps_every),
    ("about", channel), and ("call", channel, method, arguments)."""

    def __init__(self, llm: AsyncLLM, wire: Wire) -> None:
        self._llm = llm
        self._wire = wire
        self._postbag = Postbag(wire, llm.unsent, self._leave_if_broken)
        self._feed = Feed(llm.engine, self._postbag.put_news)
        llm.between_steps(self._feed)
        self._ends: dict[int, Callable[[], None]] = {}
        self._calls: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()  # a request may end before `submit` has returned
        self._compiling = ThreadPoolExecutor(2, "pellucid-grammar")
        self._loop: asyncio.AbstractEventLoop | None = None

    def obey(self, message: tuple[Any, ...]) -> None:
        kind, channel, *rest = message
        match kind:
            case "add":
                self._add(channel, *rest)
            case "cut":
                self._cut(channel)
            case "stats":
                self._reply(channel, self._llm.stats())
            case "records":
                self._reply(channel, told_of(self._llm.records(*rest)))
            case "watch":
                self._llm.post(functools.partial(self._feed.renew, *rest))
            case "about":
                self._reply(channel, self._llm.about())
            case "call":
                self._call(channel, *rest)

    def _add(self, channel: int, request: Request) -> None:
        self._ends[channel] = _nothing
        if request.params.structured_outputs is None:
            self._submit(channel, request)
        else:  # compiled before, most likely; it might take seconds
            self._compiling.submit(self._submit_completed, channel, request)

    def _submit_completed(self, channel: int, request: Request) -> None:
        try:
            self._submit(channel, self._llm.complete(request))
        except Exception as error:
            self._refuse(channel, error)

    def _submit(self, channel: int, request: Request) -> None:
        try:
            end = self._llm.submit(request, Channel(channel, self._postbag, self._forget))
        except PellucidError as error:
            self._refuse(channel, error)
            return
        with self._lock:
            known = channel in self._ends
            if known:
                self._ends[channel] = end
        if not known:  # it has ended, or was cut meanwhile
            self._llm.post(end)

    def _refuse(self, channel: int, error: BaseException) -> None:
        self._forget(channel)
        self._wire.send([(channel, Failure.of(error))])

    def _cut(self, channel: int) -> None:
        call = self._calls.pop(channel, None)
        if call is not None:
            call.cancel()
            return
        with self._lock:
            end = self._ends.pop(channel, _nothing)
        self._llm.post(end)

    def _forget(self, channel: int) -> None:
        with self._lock:
            self._ends.pop(channel, None)

    def _call(self, channel: int, method: str, arguments: Mapping[str, Any]) -> None:
        assert method in CALLS
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(
                target=self._loop.run_forever, name="pellucid-calls", daemon=True
            ).start()
        asked = getattr(self._llm, method)(**arguments)
        future = self._calls[channel] = asyncio.run_coroutine_threadsafe(asked, self._loop)
        future.add_done_callback(lambda done: self._tell(channel, done))

    def _tell(self, channel: int, done: Future[Any]) -> None:
        self._calls.pop(channel, None)
        if done.cancelled():  # whoever asked has left
            return
        error = done.exception()
        if error is None:
            self._reply(channel, done.result())
        else:
            self._wire.send([(channel, Failure.of(error))])

    def _reply(self, channel: int, value: Any) -> None:
        self._wire.send(("reply", channel, value))

    def _leave_if_broken(self) -> None:
        try:
            self._llm.check_health()
        except PellucidError as error:
            logger.error("the engine process ends: %s", error)
            os._exit(ENGINE_FAILED)


def _nothing() -> None:
    """Ends what has not begun."""


class _Notes(SilentProgress):
    """What the engine says while it loads goes to the parent."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def note(self, message: str) -> None:
        self._wire.send(("note", message))
