"""News: what a child tells of its steps as they come, at the end where it is read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from pellucid.core.errors import PellucidError
from pellucid.engine.process.letters import Fields, completed, count_of, stats_of
from pellucid.engine.records import ATTENTION_S, Cursor

_RENEWED_AFTER_S: Final = ATTENTION_S / 2
_KEPT: Final = 64  # of what nobody has read: more is left out, and counted


class News:
    """Has the child tell by `send`ing it a word now and then. One reader, in one event loop."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._unread: deque[Fields] = deque()
        self._left_out = 0
        self._stats: Fields | None = None
        self._renewed = float("-inf")
        self._stamps_every: float | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._lost: PellucidError | None = None

    async def next(self, cursor: Cursor, stamps_every: float | None) -> Fields:
        """What comes next; `cursor` says from where on, if the child tells nothing as yet. Raises
        what ended the child."""
        loop = asyncio.get_running_loop()
        if monotonic() - self._renewed > ATTENTION_S:  # nobody has watched meanwhile
            self._unread.clear()
        while not self._unread:
            if self._lost is not None:
                raise self._lost
            pause = self._renew(cursor, stamps_every)
            self._waiter = loop.create_future()
            timer = loop.call_later(pause, _wake, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        left_out, self._left_out = self._left_out, 0
        return self._with_stats(self._unread.popleft(), left_out)

    def receive(self, told: Fields) -> None:
        self._unread.append(told)
        if len(self._unread) > _KEPT:
            lost = self._unread.popleft()
            self._stats = stats_of(lost) or self._stats
            self._left_out += count_of(lost)
        self._wake()

    def _with_stats(self, told: Fields, left_out: int) -> Fields:
        """They are not in all of what comes; in the first they are."""
        self._stats = stats_of(told) or self._stats
        return completed(told, self._stats, left_out)

    def lost(self, error: PellucidError) -> None:
        """There is no child any more."""
        self._lost = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            _wake(self._waiter)

    def _renew(self, cursor: Cursor, stamps_every: float | None) -> float:
        """Says that somebody watches, if it is time to; seconds until it is again."""
        now = monotonic()
        due = self._renewed + _RENEWED_AFTER_S
        if now >= due or stamps_every != self._stamps_every:
            self._renewed, self._stamps_every = now, stamps_every
            self._send(("watch", 0, cursor, stamps_every))
            due = now + _RENEWED_AFTER_S
        return due - now


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
