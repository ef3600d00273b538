"""A histogram that the engine itself counts."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.server.tallies import Tally


class Counted(Tally):
    """An engine that was started again begins at zero: only what it adds is counted."""

    def __init__(
        self,
        name: str,
        words: str,
        bounds: Sequence[float],
        labels: Sequence[str],
        values: Sequence[str],
    ) -> None:
        super().__init__(name, words, bounds, labels, values)
        self._seen: Sequence[int] = self.counts.copy()
        self._total_seen = 0.0

    def read(self, counts: Sequence[int], total: float) -> None:
        """The engine's counts by bound, the last of what is above them all, and the sum of all that
        it counted; no counts while it has none."""
        if not counts:
            return
        if sum(counts) < sum(self._seen):
            self._seen, self._total_seen = [0] * len(counts), 0.0
        for place, (now, before) in enumerate(zip(counts, self._seen, strict=True)):
            self.counts[place] += now - before
        self.total += total - self._total_seen
        self._seen, self._total_seen = counts, total
