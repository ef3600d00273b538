"""Feed: records on their way to whoever watches, in the message that a step's letters go in.

    engine's thread: step, step, ... --due--> Postbag --one message--> ProcessClient.news

Nobody asks for each of them, so that no other thread of the engine's process is woken. Records are
made of what is sent where they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from pellucid.engine.engine import Engine
from pellucid.engine.pace import PERIOD_S
from pellucid.engine.process.letters import Fields, news_of
from pellucid.engine.records import ATTENTION_S, BEGINNING, Cursor, read_unmade, watch

STATS_EVERY_S: Final = 1 / 10  # a sixth of what telling costs


class Feed:
    """Gives `send` what is new, every `PERIOD_S` at the most, for a while after each `renew`.

    In the engine's thread, between two steps.
    """

    def __init__(self, engine: Engine, send: Callable[[Fields], None]) -> None:
        self._engine = engine
        self._send = send
        self._cursor = BEGINNING
        self._until = self._due = 0.0
        self._counted = float("-inf")

    def renew(self, cursor: Cursor, stamps_every: float | None) -> None:
        """Somebody goes on watching; one who begins has read as far as `cursor`."""
        now = monotonic()
        if now >= self._until:
            self._cursor = cursor
        self._counted = float("-inf")  # whoever begins is told all, and he who rests what is true
        self._until = now + ATTENTION_S
        watch(self._engine, stamps_every)
        self._tell(now)

    def step_done(self, now: float) -> None:
        """A step ended `now`."""
        if self._due <= now < self._until:
            self._tell(now)

    def rest(self) -> float | None:
        """Seconds until there is something to be said of the steps so far; None if there is not."""
        now = monotonic()
        if now >= self._until or self._cursor.steps >= self._engine.ledger.steps:
            return None
        return max(0.0, self._due - now)

    def _tell(self, now: float) -> None:
        # Late by part of a step now, it is early by as much next time.
        late = now - self._due
        self._due = now + PERIOD_S - (late if late < PERIOD_S else 0.0)
        found = read_unmade(self._engine, self._cursor)
        self._cursor = found.cursor
        counted = bool(found.requests) or now >= self._counted + STATS_EVERY_S
        if counted:
            self._counted = now
        self._send(news_of(found, self._engine.stats() if counted else None))
