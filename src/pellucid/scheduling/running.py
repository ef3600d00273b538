"""Running: the admitted sequences, by what they need next."""

from __future__ import annotations

from collections import Counter

from pellucid.scheduling.memory import Memory
from pellucid.scheduling.sequence import Sequence


class Running:
    """Sequences by id. Each of `all` is in `decoding` (one token to compute), in `prefilling`
    (more, or just admitted), or in neither: everything known is computed, and it waits to be
    finished. Those in `short` have no page for their last token yet."""

    def __init__(self, memory: Memory, keeps: bool) -> None:
        self.all: dict[int, Sequence] = {}
        self.decoding: dict[int, Sequence] = {}
        self.prefilling: dict[int, Sequence] = {}
        self.short: dict[int, Sequence] = {}
        self.n_growing = 0  # how many may need more pages than they have
        self.n_ended = 0  # how many have ended so far
        self._priorities: Counter[int] = Counter()
        self._memory = memory
        self._keeps = keeps

    def add(self, sequence: Sequence) -> None:
        """Just admitted: it has pages for all its tokens."""
        self.all[sequence.id] = self.prefilling[sequence.id] = sequence
        self.n_growing += len(sequence.pages) < sequence.max_pages
        self._priorities[sequence.priority] += 1

    def remove(self, sequence: Sequence) -> None:
        """It still has its pages."""
        del self.all[sequence.id]
        for group in (self.decoding, self.prefilling, self.short):
            group.pop(sequence.id, None)
        self.n_growing -= len(sequence.pages) < sequence.max_pages
        self._priorities[sequence.priority] -= 1
        if not self._priorities[sequence.priority]:
            del self._priorities[sequence.priority]

    def any_below(self, priority: int) -> bool:
        """Whether one runs whose priority is worse."""
        return max(self._priorities, default=priority) > priority

    def grow(self, sequence: Sequence) -> None:
        """Take the pages it lacks."""
        self.n_growing -= len(sequence.pages) < sequence.max_pages
        self._memory.grow(sequence)
        self.n_growing += len(sequence.pages) < sequence.max_pages

    def reserve(self, sequence: Sequence, positions: int) -> int:
        """Pages for a draft after its last token; returns for how many positions there is room."""
        self.n_growing -= len(sequence.pages) < sequence.max_pages
        room = self._memory.reserve(sequence, positions)
        self.n_growing += len(sequence.pages) < sequence.max_pages
        return room

    def trim(self, sequence: Sequence) -> None:
        """Give back what a draft did not come to need."""
        self.n_growing -= len(sequence.pages) < sequence.max_pages
        self._memory.trim(sequence)
        self.n_growing += len(sequence.pages) < sequence.max_pages

    def settle(self, sequence: Sequence) -> None:
        """Its tokens or what is computed of them changed: find its place."""
        self.decoding.pop(sequence.id, None)
        self.prefilling.pop(sequence.id, None)
        pending = sequence.pending
        if pending > 1 or (pending and not self._keeps):
            self.prefilling[sequence.id] = sequence
        elif pending:
            self.decoding[sequence.id] = sequence
        if self._memory.missing(sequence) > 0:
            self.short[sequence.id] = sequence

    def victim(self, above: int | None = None) -> Sequence | None:
        """Whom to preempt: of the lowest priority the one with least to compute again, and the
        youngest of these. Never the first in rank, so that one always gets on; nor, if `above` is
        given, one whose priority is not worse than that. None if nobody is left."""
        first = min(self.all.values(), key=lambda x: x.rank) if above is None else None
        best: tuple[tuple[int, int, int], Sequence] | None = None
        for sequence in self.all.values():
            if sequence is first or (above is not None and sequence.priority <= above):
                continue
            if best is not None and sequence.priority < -best[0][0]:
                continue
            lost, freed = self._memory.lost(sequence)
            if not freed and sequence.id not in self.short and above is None:
                continue  # others own all it has: nothing would be won
            key = (-sequence.priority, lost, -sequence.arrival)
            if best is None or key < best[0]:
                best = key, sequence
        return best[1] if best else None
