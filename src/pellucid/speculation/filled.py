"""Filled: how far a draft model's own cache has come, page by page.

The draft model keeps its keys and values on the same pages as the model that it guesses for, in a
cache of its own. So what the scheduler does to pages (sharing, copies, release) holds for both. But
the draft model computes only what it needs, when it needs it; of each page this knows how many of
its first positions are there. Two sequences that share a page hold the same tokens up to its end,
so what one of them filled serves the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges


class Filled:
    """Counts of `n_pages` pages, of `page_size` positions each."""

    def __init__(self, n_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self._counts = [0] * n_pages

    def observe(self, plan: Plan, changes: PageChanges) -> None:
        """Pages changed hands for `plan`. A copy holds what its sequence has computed of it."""
        for page in changes.taken:
            self._counts[page] = 0
        if not plan.copies:
            return
        sources = {destination: source for source, destination in plan.copies}
        for span in plan.spans:
            index, within = divmod(span.start, self.page_size)
            page = span.pages[index]
            if page in sources:
                self._counts[page] = min(self._counts[sources[page]], within)

    def first_missing(self, pages: Sequence[int], end: int) -> int:
        """The first position before `end` that is not there; `end` if all are."""
        size, counts = self.page_size, self._counts
        for index in range(-(-end // size)):
            count = counts[pages[index]]
            if count < size:
                return min(index * size + count, end)
        return end

    def wrote(self, pages: Sequence[int], start: int, end: int) -> None:
        """Positions from `start` to `end` - 1 are there; those before were."""
        size = self.page_size
        for index in range(start // size, -(-end // size)):
            page = pages[index]
            self._counts[page] = max(self._counts[page], min(end - index * size, size))

    def cut(self, pages: Sequence[int], end: int) -> None:
        """What is there from `end` on is void: the sequence goes on in another way."""
        size = self.page_size
        for index in range(end // size, len(pages)):
            page = pages[index]
            self._counts[page] = min(self._counts[page], max(end - index * size, 0))
