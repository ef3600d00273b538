"""How many tokens the engine's steps computed: a histogram that the engine itself counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from pellucid.engine.stats import STEP_SIZES, EngineStats


class Iterations(Collector):
    """A collector of one histogram, `labels` and their `values` being the model's. An engine that
    was started again begins at zero: only what it adds is counted."""

    def __init__(self, name: str, labels: Sequence[str], values: Sequence[str]) -> None:
        self._name, self._labels, self._values = name, labels, values
        self._counts = [0] * (len(STEP_SIZES) + 1)
        self._positions = 0
        self._seen: tuple[int, ...] = ()
        self._positions_seen = 0

    def read(self, stats: EngineStats) -> None:
        if stats.positions_computed < self._positions_seen:
            self._seen, self._positions_seen = (), 0
        seen = self._seen or (0,) * len(self._counts)
        for place, (now, before) in enumerate(zip(stats.step_sizes, seen, strict=False)):
            self._counts[place] += now - before
        self._positions += stats.positions_computed - self._positions_seen
        self._seen, self._positions_seen = stats.step_sizes, stats.positions_computed

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            self._name, "Tokens computed in one step.", labels=self._labels
        )
        bounds = [*map(float, STEP_SIZES), float("inf")]
        buckets = [
            (str(bound) if bound != float("inf") else "+Inf", count)
            for bound, count in zip(bounds, accumulate(self._counts), strict=True)
        ]
        family.add_metric(self._values, buckets, sum_value=self._positions)
        yield family
