"""A histogram that the engine itself counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Counted(Collector):
    """A collector of one histogram with `bounds`, `labels` and their `values` being the model's. An
    engine that was started again begins at zero: only what it adds is counted."""

    def __init__(
        self,
        name: str,
        words: str,
        bounds: Sequence[float],
        labels: Sequence[str],
        values: Sequence[str],
    ) -> None:
        self._name, self._words, self._labels, self._values = name, words, labels, values
        self._bounds = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._counts, self._total = [0] * len(self._bounds), 0.0
        self._seen: Sequence[int] = self._counts.copy()
        self._total_seen = 0.0

    def read(self, counts: Sequence[int], total: float) -> None:
        """The engine's counts by bound, the last of what is above them all, and the sum of all that
        it counted; no counts while it has none."""
        if not counts:
            return
        if sum(counts) < sum(self._seen):
            self._seen, self._total_seen = [0] * len(counts), 0.0
        for place, (now, before) in enumerate(zip(counts, self._seen, strict=True)):
            self._counts[place] += now - before
        self._total += total - self._total_seen
        self._seen, self._total_seen = counts, total

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._words, labels=self._labels)
        buckets = list(zip(self._bounds, accumulate(self._counts), strict=True))
        family.add_metric(self._values, buckets, sum_value=self._total)
        yield family
