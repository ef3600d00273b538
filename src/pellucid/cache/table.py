"""PageTable: the pages of one sequence, in the order of its positions."""

from __future__ import annotations

from pellucid.cache.pool import PagePool
from pellucid.costs import pages_for


class PageTable:
    """Maps position p to page `pages[p // page_size]`, slot p % page_size.

    Made with a promise of `capacity` pages, which it takes only as positions come to need them.
    Raises `ValueError` if the pool cannot promise them.
    """

    def __init__(self, pool: PagePool, page_size: int, capacity: int) -> None:
        pool.reserve(capacity)
        self._pool = pool
        self._page_size = page_size
        self.capacity = capacity
        self.pages: tuple[int, ...] = ()

    def cover(self, n_tokens: int) -> None:
        """Hold pages for positions 0 to `n_tokens` - 1.

        Raises `ValueError` beyond the capacity.
        """
        needed = pages_for(n_tokens, self._page_size)
        if needed > self.capacity:
            raise ValueError(f"{n_tokens} positions need {needed} pages of {self.capacity}")
        missing = needed - len(self.pages)
        if missing > 0:
            self.pages += tuple(self._pool.take() for _ in range(missing))

    def release(self) -> None:
        """Give back every page and what was promised. The table is empty then, for good."""
        pages, untaken = self.pages, self.capacity - len(self.pages)
        self.pages, self.capacity = (), 0
        # In reverse, so that the pool hands the first page out first again.
        for page in reversed(pages):
            self._pool.release(page)
        self._pool.unreserve(untaken)
