"""Rising: counts of something else, as counters."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Counter


class Rising:
    """Counters of something that may begin again at zero: only what was added is counted."""

    def __init__(self, counters: Mapping[str, Counter]) -> None:
        self._counters = counters
        self._seen: dict[str, float] = dict.fromkeys(counters, 0)

    def read(self, counts: Mapping[str, float]) -> None:
        began_again = any(counts[name] < seen for name, seen in self._seen.items())
        for name, counter in self._counters.items():
            counter.inc(counts[name] - (0 if began_again else self._seen[name]))
            self._seen[name] = counts[name]
