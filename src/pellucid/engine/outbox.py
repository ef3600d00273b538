"""Outbox: what an engine's thread has for one event loop.

engine's thread: Line.add, Line.fail --> Outbox --flush, once a step--> event loop: receive
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment


class Flushed(Protocol):
    """What has something to send at the end of a step."""

    def flush(self) -> None: ...


class Outbox:
    """Letters for the receivers in `loop`, handed over in one call for each step.

    It puts itself on the list `unsent` when its first letter comes; whoever runs the engine flushes
    what is there.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, unsent: list[Flushed]) -> None:
        self._loop = loop
        self._unsent = unsent
        self._letters: list[tuple[Line, Any]] = []

    def put(self, line: Line, letter: Any) -> None:
        if not self._letters:
            self._unsent.append(self)
        self._letters.append((line, letter))

    def flush(self) -> None:
        letters, self._letters = self._letters, []
        try:
            self._loop.call_soon_threadsafe(_hand_over, letters)
        except RuntimeError:  # the loop was closed: nobody there waits any more
            for line, _ in letters:
                line.cut()


class Line:
    """The way from the engine's thread to one receiver. A `Sink`.

    `receive` is called in the event loop; `cut`, in the engine's thread, ends what feeds it.
    """

    def __init__(self, outbox: Outbox, receive: Callable[[Any], None]) -> None:
        self._outbox = outbox
        self.receive = receive
        self.cut: Callable[[], None] = _nothing

    def send(self, letter: Any) -> None:
        self._outbox.put(self, letter)

    def add(self, increment: Increment) -> None:
        self._outbox.put(self, increment)

    def fail(self, error: PellucidError) -> None:
        self._outbox.put(self, error)


def _hand_over(letters: list[tuple[Line, Any]]) -> None:
    for line, letter in letters:
        line.receive(letter)


def _nothing() -> None:
    """Before anything feeds a line, there is nothing to cut."""
