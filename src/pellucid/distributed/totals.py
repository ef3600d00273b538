"""Totals: the numbers of several engines as if they were one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import fields
from itertools import zip_longest
from typing import Any, Final

from pellucid.engine.stats import EngineStats

# What is so at the moment; all else counts up.
_OF_NOW: Final = frozenset(
    {"running_sequences", "waiting_sequences", "pages_free", "pages_cached", "pages_owned"}
)
_NONE: Final = EngineStats(*(12 * (0,)))
# Engines that are not there, and whose counts are kept apart: one of them may come back.
_AWAY: Final = 64


class Totals:
    """What engines counted, those too that are gone, so that no count ever falls. One that was not
    there for a while and is again counts once."""

    def __init__(self) -> None:
        self._seen: dict[str, EngineStats] = {}
        self._away: OrderedDict[str, EngineStats] = OrderedDict()
        self._gone = _NONE

    def see(self, name: str, stats: EngineStats) -> None:
        """What the engine of that name says now."""
        self._away.pop(name, None)
        self._seen[name] = stats

    def only(self, names: Iterable[str]) -> None:
        """There are no others at the moment."""
        for name in self._seen.keys() - set(names):
            self._away[name] = _counts(self._seen.pop(name))
        while len(self._away) > _AWAY:
            self._gone = _sum(self._gone, self._away.popitem(last=False)[1])

    def stats(self) -> EngineStats:
        """All of them together."""
        total = self._gone
        for stats in (*self._away.values(), *self._seen.values()):
            total = _sum(total, stats)
        return total


def _counts(stats: EngineStats) -> EngineStats:
    values: dict[str, Any] = {
        field.name: 0 if field.name in _OF_NOW else getattr(stats, field.name)
        for field in fields(stats)
    }
    return EngineStats(**values)


def _sum(one: EngineStats, other: EngineStats) -> EngineStats:
    names = [field.name for field in fields(one)]
    return EngineStats(**{name: _added(getattr(one, name), getattr(other, name)) for name in names})


def _added(one: Any, other: Any) -> Any:
    if hasattr(one, "_fields"):
        return type(one)(*map(_added, one, other))
    if isinstance(one, tuple):
        return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))
    return one + other
