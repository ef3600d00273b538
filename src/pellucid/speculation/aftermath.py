"""Aftermath: what plain steps take more for a while after one of several rows.

On processors whose wide instructions lower the clock the next plain steps are slower: by a
twentieth at first, fading over ten steps or so, together a fifth of a step. To compare a plain step
with the one after it does not show that; so steps soon after a draft are compared with those of the
same stretch that come later.
"""

from __future__ import annotations

import statistics
from typing import Final

# Plain steps for which it fades, and those after that it is seen by.
_REACH: Final = 12
_BEYOND: Final = 6
# The mean of `_weight` over the reach.
_MEAN_WEIGHT: Final = (_REACH + 1) / (2 * _REACH)
# The most that a step can say, how far a stretch moves what is known (the first ones more, as if so
# many had said nothing), and the most that is believed: on a busy machine stretches say anything,
# and what kept guesses from being made would never be found wrong.
_MOST: Final = 0.2
_RATE: Final = 0.05
_SAID_NOTHING: Final = 5
_BELIEVED: Final = 0.08


class Aftermath:
    """Learnt from the steps of an engine."""

    def __init__(self) -> None:
        self.share = 0.0  # of a plain step, what the first one after a draft takes more
        self._n_stretches = 0
        self._rows = 0
        self._seconds: list[float] = []  # of plain steps since the last draft
        self._watching = False

    @property
    def watching(self) -> bool:
        """Whether steps without drafts are to be told, each of them."""
        return self._watching

    @property
    def ahead(self) -> float:
        """What a draft now would add to it, in plain steps."""
        since = len(self._seconds) if self._watching else _REACH
        left = max(_REACH - since, 0)
        return max(self.share, 0.0) * (_REACH * (_REACH + 1) - left * (left + 1)) / (2 * _REACH)

    def drafted(self) -> None:
        """A step had drafts."""
        self._seconds, self._watching = [], True

    def more(self, rows: int, seconds: float) -> float:
        """A plain step of so many rows took so long: what it took more for the drafts before it, as
        a share of what it would have taken."""
        if not self._watching:
            return 0.0
        since = len(self._seconds)
        if since and rows != self._rows:  # another crowd: no longer to be compared
            self._watching = False
            return 0.0
        self._rows = rows
        self._seconds.append(seconds)
        if since + 1 == _REACH + _BEYOND:
            self._learn()
            self._watching = False
        return max(self.share, 0.0) * (1.0 - since / _REACH) if since < _REACH else 0.0

    def _learn(self) -> None:
        later = statistics.median(self._seconds[_REACH:])
        said = [max(-_MOST, min(_MOST, took / later - 1.0)) for took in self._seconds[:_REACH]]
        self._n_stretches += 1
        rate = max(_RATE, 1 / (self._n_stretches + _SAID_NOTHING))
        share = self.share + rate * (statistics.fmean(said) / _MEAN_WEIGHT - self.share)
        self.share = max(-_BELIEVED, min(_BELIEVED, share))
