"""Whether so many replicas are enough, and the search for the fewest that are.

More replicas are better but for chance, so they are looked for between one number that is too few
and one that is enough. A search remembers what it tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pellucid.core.errors import BadInput
from pellucid.simulate.goals import Goal
from pellucid.simulate.setup import MOST_REPLICAS
from pellucid.simulate.summary import Point
from pellucid.simulate.sweep import Case, Sweep


def served(point: Point) -> float:
    """Requests a second that end."""
    return point.mean(lambda run: run.served)


def is_stable(point: Point) -> bool:
    """Whether it keeps up: in the time looked at as many end as come, nearly."""
    return served(point) >= 0.95 * point.mean(lambda run: run.rate)


def is_enough(point: Point, goals: Sequence[Goal]) -> bool:
    """Whether it keeps up and meets the goals."""
    return is_stable(point) and all(goal.met(point) for goal in goals)


class Search:
    """For the fewest replicas that are enough at `rate` requests a second of all of them; `case_of`
    is the load on so many. `tried` is what was simulated, by their number."""

    def __init__(
        self,
        sweep: Sweep,
        goals: Sequence[Goal],
        rate: float,
        case_of: Callable[[int], Case],
    ) -> None:
        self.tried: dict[int, Point] = {}
        self._sweep = sweep
        self._goals = goals
        self._rate = rate
        self._case_of = case_of

    def upwards(self, low: int) -> int:
        """From `low`, below which they do not keep up: in wider and wider strides, then by halving.
        Raises `BadInput` where none of up to `MOST_REPLICAS` are enough."""
        stride, below = max(1, low // 8), low - 1
        while True:
            counts = sorted({min(below + stride * k, MOST_REPLICAS) for k in (1, 2)})
            if low == 1 and not below:
                counts = [1, 2]
            for n, good in zip(counts, self._good(counts), strict=True):
                if good:
                    return self._between(below, n)
                below = n
            if below >= MOST_REPLICAS:
                raise self._too_many()
            stride *= 2

    def near(self, start: int, low: int) -> int:
        """As `upwards`, from a number that is about right: downwards as long as fewer are enough,
        or else upwards."""
        fewer, enough = self._good([max(low, start - 1), start])
        if enough and not fewer:
            return start
        if enough:
            below, above = self._fewer(max(low, start - 1), low - 1)
        else:
            below, above = self._more(start)
        return self._between(below, above)

    def _fewer(self, above: int, floor: int) -> tuple[int, int]:
        """From a number that is enough down, two at a time, to (too few, enough)."""
        stride = 1
        while above - floor > 1:
            first = max(floor + 1, above - stride)
            counts = [first, max(floor + 1, first - 2 * stride)]
            for n, good in zip(counts, self._good(counts), strict=True):
                if not good:
                    return n, above
                above = n
            stride *= 4
        return floor, above

    def _more(self, below: int) -> tuple[int, int]:
        """From a number that is too few up, two at a time, to (too few, enough)."""
        stride = 1
        while below < MOST_REPLICAS:
            counts = [min(below + k * stride, MOST_REPLICAS) for k in (1, 3)]
            for n, good in zip(counts, self._good(counts), strict=True):
                if good:
                    return below, n
                below = n
            stride *= 4
        raise self._too_many()

    def _between(self, below: int, above: int) -> int:
        """The fewest, where `below` are too few and `above` are enough: by thirds, since two runs
        go on at once."""
        while above - below > 1:
            third = max(1, (above - below) // 3)
            counts = sorted({below + third, above - third})
            for n, good in zip(counts, self._good(counts), strict=True):
                if good:
                    above = n
                    break
                below = n
        return above

    def _good(self, counts: Sequence[int]) -> list[bool]:
        new = [n for n in dict.fromkeys(counts) if n not in self.tried]
        points = self._sweep.points([self._case_of(n) for n in new])
        self.tried.update(zip(new, points, strict=True))
        return [is_enough(self.tried[n], self._goals) for n in counts]

    def _too_many(self) -> BadInput:
        worst = self.tried[MOST_REPLICAS]
        told = "; ".join(_told(goal, worst) for goal in self._goals if not goal.met(worst))
        return BadInput(
            f"{MOST_REPLICAS} replicas do not meet the goals at {self._rate:g} requests a second: "
            f"{told}"
        )


def _told(goal: Goal, point: Point) -> str:
    band = goal.of(point)
    reached = "nothing" if band is None else f"{band.mean:.3g} s"
    return f"the {goal.words} is {reached}, not {goal.seconds:g} s"
