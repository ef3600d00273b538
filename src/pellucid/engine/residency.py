"""Residency: how long pages of the KV cache live, lie unused, and wait to be used again.

Who keeps the pages has no clock; a step has one, and what happened to pages until then. So every
time is that of a step's start.

A page's life: taken --shared*--> evicted. What a sequence gives back without its having been cached
just ends; what is told is told of pages in the prefix cache.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from pellucid.core.record import PageChanges
from pellucid.engine.stats import RESIDENCY_SECONDS, Durations

_NEVER: Final = -1.0


class Residency:
    """Of an engine's pages, by number. `now` is in seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._taken: dict[int, float] = {}
        self._shared: dict[int, float] = {}  # last; `_NEVER` until the first time
        self._lifetimes, self._idle, self._gaps = _Counts(), _Counts(), _Counts()

    def enter(self, changes: PageChanges, now: float) -> None:
        """What happened to pages until `now`, since it was said last."""
        taken, shared = self._taken, self._shared
        for page in changes.evicted:  # before whoever evicted them takes them
            born = taken.get(page)
            if born is not None:
                self._lifetimes.add(now - born)
                self._idle.add(now - max(born, shared[page]))
        for page in changes.shared:
            last = shared.get(page, _NEVER)
            if last != _NEVER:
                self._gaps.add(now - last)
            shared[page] = now
        for page in changes.taken:
            taken[page], shared[page] = now, _NEVER

    def told(self) -> tuple[Durations, Durations, Durations]:
        """Lifetimes, from taken to evicted; how long what is evicted had not been taken or shared;
        and times from one sharing to the next."""
        return self._lifetimes.told(), self._idle.told(), self._gaps.told()


class _Counts:
    def __init__(self) -> None:
        self._counts = [0] * (len(RESIDENCY_SECONDS) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(RESIDENCY_SECONDS, seconds)] += 1
        self._seconds += seconds

    def told(self) -> Durations:
        return Durations(tuple(self._counts), self._seconds)
