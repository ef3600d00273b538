"""Step times: what a step costs by the rows it computes, learnt from those that were run.

Time is a level times a shape over rows. The level is the median of what the last few steps say of
it: it follows within two or three as other work comes and goes, and one step that was held up does
not move it. The shape, how much more several rows cost than one, is remembered. What a step says of
it moves it by a bounded step up or down, so that it comes to rest at the median; two steps of
different rows that follow each other say more, since the moment makes no difference to them. More
rows are never cheaper than fewer: where measurements say so, they are alike. While all that the
level is made of had the same rows, a further such step says nothing of the shape.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from typing import Final

# Steps whose median is the level, how far a step and a pair move the shape, and the most that they
# can say; the first of some number of rows, beside what was expected of it, can say more.
_WINDOW: Final = 5
_SHAPE_RATE: Final = 0.1
_PAIR_RATE: Final = 0.25
_MOST: Final = math.log(1.25)
_FIRST: Final = 1.5
# Measurements that weigh as much as any more of them.
_SURE_COUNT: Final = 20
# Who hopes takes what was measured little for cheaper, so that it is tried again: a single
# measurement counts a quarter less, and beyond the most rows measured each costs half of what the
# last ones did. While only one number of rows is known a further row costs this share of it.
_HOPE: Final = 0.25
_HOPED_SLOPE: Final = 0.5
_UNKNOWN_ROW: Final = 0.1


class StepTimes:
    """Seconds by rows. Between the numbers of rows that were measured it is a straight line."""

    def __init__(self) -> None:
        self._levels: deque[float] = deque(maxlen=_WINDOW)
        self._level: float | None = 0.0  # None: to be worked out of them
        self._n_alike = 0  # steps on end of the same rows
        self._rows: list[int] = []  # measured, ascending
        self._shape: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self._pairs: dict[int, int] = {}
        self._last = 0, 0.0  # rows and seconds

    @property
    def level(self) -> float:
        """Seconds of a step of the least rows as things are now; 0 while nothing is known."""
        if self._level is None:
            self._level = sorted(self._levels)[(len(self._levels) - 1) // 2]
        return self._level

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
        self._n_alike = self._n_alike + 1 if rows == self._last[0] else 1
        if self._n_alike > _WINDOW:  # nearly every step for which nothing was guessed
            self._counts[rows] += 1
        else:
            self._learn_shape(rows, seconds)
        self._last = rows, seconds
        self._levels.append(seconds / self._shape[rows])
        self._level = None

    def of(self, rows: int) -> float:
        """What a step of so many rows takes; 0 while nothing is known."""
        if not self._rows:
            return 0.0
        return self.level * (self._shape[rows] if rows in self._shape else self._between(rows))

    def hoped(self, rows: int) -> float:
        """The same, but the less was measured the cheaper."""
        if rows not in self._shape:
            return self.level * self._between(rows, hoping=True)
        return self.level * self._known(rows, hoping=True)

    def _learn_shape(self, rows: int, seconds: float) -> None:
        if not self._rows:
            self._level = seconds
            self._begin(rows, 1.0)
        elif rows not in self._shape:
            expected = self._between(rows)
            ratio = seconds / (self.level * expected)
            self._begin(rows, expected * max(1 / _FIRST, min(_FIRST, ratio)))
        else:
            error = _bounded(seconds / (self.level * self._shape[rows]))
            count = self._counts[rows] = self._counts[rows] + 1
            self._shape[rows] *= math.exp(max(_SHAPE_RATE, 1 / count) * error)
            self._note_pair(*self._last, rows, seconds)
        self._pool(bisect_left(self._rows, rows))

    def _begin(self, rows: int, shape: float) -> None:
        self._rows.insert(bisect_left(self._rows, rows), rows)
        self._shape[rows] = shape
        self._counts[rows] = 1

    def _note_pair(self, rows: int, seconds: float, others: int, took: float) -> None:
        """A step of `rows`, and then one of `others`: what that says of the one with more rows."""
        if rows == others or not rows:
            return
        shape = self._shape
        error = _bounded(took / seconds * shape[rows] / shape[others])
        more = max(rows, others)
        pairs = self._pairs[more] = self._pairs.get(more, 1) + 1
        rate = max(_PAIR_RATE, 1 / pairs)
        shape[more] *= math.exp(rate * (error if others > rows else -error))

    def _pool(self, at: int) -> None:
        """One value for the neighbours of measured rows number `at` that are out of order."""
        shape, rows = self._shape, self._rows
        for low in at - 1, at:
            if low < 0 or low + 1 >= len(rows) or shape[rows[low]] <= shape[rows[low + 1]]:
                continue
            weights = [min(self._counts[rows[i]], _SURE_COUNT) for i in (low, low + 1)]
            both = sum(w * shape[rows[low + i]] for i, w in enumerate(weights)) / sum(weights)
            shape[rows[low]] = shape[rows[low + 1]] = both

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


def _bounded(ratio: float) -> float:
    """What is taken from a measurement that is so many times what was expected: logarithmic."""
    return max(-_MOST, min(_MOST, math.log(ratio)))
