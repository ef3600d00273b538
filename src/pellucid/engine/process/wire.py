"""Wire: the child's end of the socket."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment
from pellucid.engine.outbox import Flushed
from pellucid.engine.process.frames import pack
from pellucid.engine.process.letters import Failure, Fields, fields_of

PARENT_GONE: Final = 3  # the exit code of a child whose parent is gone


class Wire:
    """Sends from any thread and waits for nobody: what the socket does not take at once is sent by
    a thread of its own.

    A parent that is gone ends the process: there is nobody left to compute for.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._rest: deque[memoryview] = deque()
        self._changed = threading.Condition()
        self._writer: threading.Thread | None = None

    def send(self, *messages: Any) -> None:
        frame = memoryview(b"".join(map(pack, messages)))
        with self._changed:
            if not self._rest:
                frame = frame[self._offer(frame) :]
            if frame:
                self._rest.append(frame)
                self._wake_writer()

    def _offer(self, frame: memoryview) -> int:
        """How much of it the socket takes now."""
        try:
            return self._socket.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            os._exit(PARENT_GONE)

    def _wake_writer(self) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="pellucid-wire", daemon=True)
            self._writer.start()
        self._changed.notify()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._rest)
                frame = self._rest[0]
            try:
                self._socket.sendall(frame)
            except OSError:
                os._exit(PARENT_GONE)
            with self._changed:
                self._rest.popleft()


class Postbag:
    """The letters of one step, sent as one message, and the news where there are some. An outbox of
    the engine's runner.

    `after_failure` is called once those are sent that tell of a failure.
    """

    def __init__(
        self, wire: Wire, unsent: list[Flushed], after_failure: Callable[[], None]
    ) -> None:
        self._wire = wire
        self._unsent = unsent
        self._after_failure = after_failure
        self._letters: list[tuple[int, Fields | Failure]] = []
        self._news: list[tuple[str, Fields]] = []
        self._failing = False

    def put(self, channel: int, letter: Fields | Failure) -> None:
        """In the engine's thread."""
        self._will_be_flushed()
        self._letters.append((channel, letter))
        self._failing |= isinstance(letter, Failure)

    def put_news(self, told: Fields) -> None:
        """In the engine's thread: for whoever watches."""
        self._will_be_flushed()
        self._news.append(("news", told))

    def _will_be_flushed(self) -> None:
        if not (self._letters or self._news):
            self._unsent.append(self)

    def flush(self) -> None:
        letters, self._letters = self._letters, []
        news, self._news = self._news, []
        if letters:  # first: they are waited for
            self._wire.send(letters, *news)
        else:
            self._wire.send(*news)
        if self._failing:
            self._failing = False
            self._after_failure()


class Channel:
    """A request's way to whoever asked. A `Sink`."""

    def __init__(self, number: int, postbag: Postbag, ended: Callable[[int], object]) -> None:
        self._number = number
        self._postbag = postbag
        self._ended = ended

    def add(self, increment: Increment) -> None:
        self._postbag.put(self._number, fields_of(increment))
        if increment.metrics is not None:
            self._ended(self._number)

    def fail(self, error: PellucidError) -> None:
        self._postbag.put(self._number, Failure.of(error))
        self._ended(self._number)
