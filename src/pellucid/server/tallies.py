"""Histograms that are counted in plain numbers and told when they are asked for: a token costs one
search and two sums."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Tally(Collector):
    """A collector of one histogram with `bounds`, `labels` and their `values` being the model's.
    counts: of each bound, what was above the one before and not above it; last what was above all.
    """

    def __init__(
        self,
        name: str,
        words: str,
        bounds: Sequence[float],
        labels: Sequence[str],
        values: Sequence[str],
    ) -> None:
        self._name, self._words = name, words
        self._labels, self._values = labels, values
        self._bounds = tuple(map(float, bounds))
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._words, labels=self._labels)
        names = map(floatToGoString, (*self._bounds, float("inf")))
        buckets = list(zip(names, accumulate(self.counts), strict=True))
        family.add_metric(self._values, buckets, sum_value=self.total)
        yield family
