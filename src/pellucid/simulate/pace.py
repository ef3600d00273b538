"""How a machine keeps its pace: not at all evenly.

For some hundred milliseconds at a time other programs, the server's own other process or a
neighbour of the machine take what a step wanted. Steps of such a spell are slow together, and
requests pile up as they would not behind slow steps that are strewn about; a long step, on the
other hand, meets good and bad spells alike. So what was measured is kept as it was: a trace of work
done over time. It is played back in pieces that are drawn at random, each long enough for a spell
(the moving blocks of Kuensch 1989).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from pellucid.simulate.draws import Draws

PIECE_S: Final = 2.0  # the longest slow spells that were seen lasted a second


@dataclass(frozen=True, slots=True)
class Pace:
    """A trace. After `times[i]` seconds of it, work of `work[i]` seconds of the cost model was
    done; both begin at 0 and rise, and end alike: on average the machine does what the model says.
    Of length 1 (only the 0): it always does."""

    times: tuple[float, ...] = (0.0,)
    work: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        if len(self.times) != len(self.work) or self.times[:1] != (0.0,) or self.work[0]:
            raise ValueError("a pace begins at 0, and has as many times as it has work")
        for values in (self.times, self.work):
            if any(b <= a for a, b in pairwise(values)):
                raise ValueError("a pace rises")
        if abs(self.times[-1] - self.work[-1]) > 1e-6 * self.times[-1]:
            raise ValueError("a pace ends with as much work as time")

    @staticmethod
    def of(steps: Iterable[tuple[float, float]]) -> Pace:
        """Of steps in their order: the seconds that each took, and those of the cost model."""
        found = [(took, modelled) for took, modelled in steps if took > 0 and modelled > 0]
        if not found:
            return Pace()
        scale = sum(took for took, _ in found) / sum(modelled for _, modelled in found)
        times = accumulate((took for took, _ in found), initial=0.0)
        work = list(accumulate((scale * modelled for _, modelled in found), initial=0.0))
        return Pace(tuple(times), (*work[:-1], sum(took for took, _ in found)))

    @property
    def even(self) -> bool:
        return len(self.times) < 2

    def played(self, draws: Draws) -> Played:
        """As one replica meets it."""
        return Played(self, draws)

    def done(self, at: float) -> float:
        """The work done by a time of the trace, which begins anew where it ends."""
        rounds, at = divmod(at, self.times[-1])
        return rounds * self.work[-1] + _between(self.times, self.work, at)

    def when(self, done: float) -> float:
        """The time by which so much work is done: the inverse of `done`."""
        rounds, done = divmod(done, self.work[-1])
        return rounds * self.times[-1] + _between(self.work, self.times, done)


def _between(known: tuple[float, ...], wanted: tuple[float, ...], x: float) -> float:
    i = min(bisect_right(known, x), len(known) - 1)
    low = known[i - 1]
    return wanted[i - 1] + (x - low) * (wanted[i] - wanted[i - 1]) / (known[i] - low)


class Played:
    """A pace as one replica meets it: in each `PIECE_S` of its time, from another place of the
    trace on. A function of the draws and the time alone."""

    def __init__(self, pace: Pace, draws: Draws) -> None:
        self._pace = pace
        self._draws = draws

    def seconds(self, now: float, work: float) -> float:
        """How long a step takes that begins `now` and would take `work` by the cost model."""
        pace = self._pace
        if pace.even:
            return work
        piece, passed = divmod(now, PIECE_S)
        took = 0.0
        while True:
            place = self._draws.at(int(piece)).random() * pace.times[-1] + passed
            begun = pace.done(place)
            left = PIECE_S - passed
            within = pace.done(place + left) - begun
            if work <= within:
                return took + pace.when(begun + work) - place
            work, took, piece, passed = work - within, took + left, piece + 1, 0.0
