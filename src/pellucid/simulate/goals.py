"""What a service promises: quantiles of latency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pellucid.core.errors import BadInput
from pellucid.simulate.summary import Band, Point, Summary

DELAYS: Final = {
    "ttft": "time to the first token",
    "itl": "time between tokens",
    "e2e": "time to the last token",
}
SHARES: Final = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Goal:
    """A quantile (`share`) of a delay that must be at most so many seconds."""

    delay: str
    share: str
    seconds: float

    def __post_init__(self) -> None:
        if self.delay not in DELAYS or self.share not in SHARES:
            raise ValueError(f"no such goal: {self.name}")
        if not 0 < self.seconds <= 1e6:
            raise BadInput(f"--{self.name} {self.seconds:g}: seconds must be above 0, to 1e6")

    @property
    def name(self) -> str:
        return f"{self.delay}-{self.share}"

    @property
    def words(self) -> str:
        return f"{self.share} of the {DELAYS[self.delay]}"

    def of(self, point: Point) -> Band | None:
        """What it comes to; None: no request had it."""
        return point.band(delay(self.delay, self.share))

    def met(self, point: Point) -> bool:
        """Whether the mean over seeds is within it. What nobody had is met."""
        band = self.of(point)
        return band is None or band.mean <= self.seconds


def delay(name: str, share: str) -> Callable[[Summary], float | None]:
    """A quantile, or "mean", of a delay of a run."""

    def value(summary: Summary) -> float | None:
        found: float | None = getattr(getattr(summary, name), share)
        return found

    return value
