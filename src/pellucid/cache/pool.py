"""PagePool: which pages are free, and how many owners the others have.

Invariants (`check` asserts them):

1. A page is free, or has at least one owner; never both, and no page is neither.
2. The free list holds each free page once.
3. 0 <= reserved <= free: a promise that was made can be kept.

    free --take--> owned by 1 --share--> by 2 ... --release--> by 1 --release--> free

A page shared by content (a prefix cache) is one with more than one owner.
"""

from __future__ import annotations


class PagePool:
    """`n_pages` pages, numbered from 0."""

    def __init__(self, n_pages: int) -> None:
        if n_pages < 1:
            raise ValueError(f"a pool needs at least one page, not {n_pages}")
        self._owners = [0] * n_pages
        # A stack, lowest page on top: pages that were just used are used again first, so memory
        # that was never needed is never touched.
        self._free = list(range(n_pages - 1, -1, -1))
        self._reserved = 0

    @property
    def n_pages(self) -> int:
        return len(self._owners)

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_unreserved(self) -> int:
        """Free pages that nobody has been promised."""
        return len(self._free) - self._reserved

    def reserve(self, count: int) -> None:
        """Promise `count` free pages to the caller, which `take` then gives one by one.

        Raises `ValueError` for more than `n_unreserved`: ask that first.
        """
        if not 0 <= count <= self.n_unreserved:
            raise ValueError(f"{count} pages asked for, {self.n_unreserved} to be had")
        self._reserved += count

    def unreserve(self, count: int) -> None:
        """Give back `count` promised pages that were not taken."""
        if not 0 <= count <= self._reserved:
            raise ValueError(f"{count} pages given back, {self._reserved} promised")
        self._reserved -= count

    def take(self) -> int:
        """A free page out of those the caller had promised; it has one owner now."""
        self.unreserve(1)
        page = self._free.pop()
        self._owners[page] = 1
        return page

    def share(self, page: int) -> None:
        """One more owner of a page that has at least one."""
        self._owned(page)
        self._owners[page] += 1

    def release(self, page: int) -> None:
        """One owner less; without any the page is free."""
        self._owned(page)
        self._owners[page] -= 1
        if not self._owners[page]:
            self._free.append(page)

    def owners(self, page: int) -> int:
        """How many owners a page has; 0 is free."""
        return self._owners[page]

    def check(self) -> None:
        """Assert the invariants."""
        free = set(self._free)
        assert len(free) == len(self._free), "a page is on the free list twice"
        assert free == {page for page, owners in enumerate(self._owners) if owners == 0}
        assert all(owners >= 0 for owners in self._owners)
        assert 0 <= self._reserved <= len(self._free)

    def _owned(self, page: int) -> None:
        if not 0 <= page < len(self._owners) or not self._owners[page]:
            raise ValueError(f"page {page} has no owner")
