"""Step times: what a step costs by the rows it computes, learnt from those that were run.

Time is a level times a shape over rows. The level follows what is measured within a few steps, as
contexts grow and other work comes and goes; the shape, how much more several rows cost than one,
changes slowly and is remembered.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

# How far one measurement moves the level and the shape, and the most that it can say. Steps are
# held up by other work, never hurried, so one that took longer is believed less.
_LEVEL_RATE: Final = 0.25
_SHAPE_RATE: Final = 0.15
_SLOWER: Final = math.log(1.15)
_FASTER: Final = math.log(1.4)
# Who hopes takes what was measured little for cheaper, so that it is tried again: a single
# measurement counts a quarter less, and beyond the most rows measured each costs half of what the
# last ones did. While only one number of rows is known a further row costs this share of it.
_HOPE: Final = 0.25
_HOPED_SLOPE: Final = 0.5
_UNKNOWN_ROW: Final = 0.1


class StepTimes:
    """Seconds by rows. Between the numbers of rows that were measured it is a straight line."""

    def __init__(self) -> None:
        self._level = 0.0
        self._rows: list[int] = []  # measured, ascending
        self._shape: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._rows)

    def beyond(self, rows: int) -> bool:
        """Whether a step of more rows was measured."""
        return bool(self._rows) and self._rows[-1] > rows

    def note(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        if seconds <= 0.0 or rows < 1:
            return
        if not self._rows:
            self._level = seconds
        if rows not in self._shape:
            self._rows.insert(bisect_left(self._rows, rows), rows)
            self._shape[rows] = seconds / self._level
            self._counts[rows] = 1
            return
        error = math.log(seconds / (self._level * self._shape[rows]))
        error = max(-_FASTER, min(_SLOWER, error))
        count = self._counts[rows] = self._counts[rows] + 1
        self._level *= math.exp(_LEVEL_RATE * error)
        self._shape[rows] *= math.exp(max(_SHAPE_RATE, 1 / count) * error)

    def of(self, rows: int) -> float:
        """What a step of so many rows takes; 0 while nothing is known."""
        if not self._rows:
            return 0.0
        return self._level * (self._shape[rows] if rows in self._shape else self._between(rows))

    def hoped(self, rows: int) -> float:
        """The same, but the less was measured the cheaper."""
        if rows not in self._shape:
            return self._level * self._between(rows, hoping=True)
        return self._level * self._known(rows, hoping=True)

    def _known(self, rows: int, hoping: bool) -> float:
        return self._shape[rows] * (1.0 - _HOPE / self._counts[rows] if hoping else 1.0)

    def _between(self, rows: int, hoping: bool = False) -> float:
        at = bisect_left(self._rows, rows)
        if at == 0:
            first = self._rows[0]
            return self._shape[first] * _prior(rows) / _prior(first)
        low = self._rows[at - 1]
        if at == 1 == len(self._rows):
            return self._shape[low] * _prior(rows) / _prior(low)
        if at == len(self._rows):
            before = self._rows[at - 2]
            slope = max(self._shape[low] - self._shape[before], 0.0) / (low - before)
            slope *= _HOPED_SLOPE if hoping else 1.0
            return self._known(low, hoping) + slope * (rows - low)
        high = self._rows[at]
        share = (rows - low) / (high - low)
        # The lower end may be plain decoding, which is no matter of hope.
        lower = self._known(low, hoping and at > 1)
        return lower * (1 - share) + self._known(high, hoping) * share


def _prior(rows: int) -> float:
    return 1.0 + _UNKNOWN_ROW * (rows - 1)
