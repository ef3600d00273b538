"""PagePool: which pages are free, which are kept, and how many owners the others have.

      free --take--> owned by 1 --share--> by 2 ... --release--> by 1 --release--> free
                        ^                                               (kept) `--> idle
                        `--------------------share--------------------------------'  |
      free <--evict------------------------------------------------------------------'

Invariants (`check` asserts them):

1. A page is free, idle, or has at least one owner; exactly one of the three.
2. The free list holds each free page once.
3. An idle page is one that was kept for its content and has no owner now. Idle pages stand in the
   order in which they lost their last owner; `evict` frees the first.
"""

from __future__ import annotations

from collections import OrderedDict


class PagePool:
    """`n_pages` pages, numbered from 0."""

    def __init__(self, n_pages: int) -> None:
        if n_pages < 1:
            raise ValueError(f"a pool needs at least one page, not {n_pages}")
        self._owners = [0] * n_pages
        self._kept = bytearray(n_pages)
        # A stack, lowest page on top: pages that were just used are used again first, so memory
        # that was never needed is never touched.
        self._free = list(range(n_pages - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def n_pages(self) -> int:
        return len(self._owners)

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_idle(self) -> int:
        return len(self._idle)

    @property
    def n_available(self) -> int:
        """Pages that can be had: free ones, and idle ones after `evict`."""
        return len(self._free) + len(self._idle)

    def idle(self) -> tuple[int, ...]:
        """The idle pages, first the one that `evict` would free."""
        return tuple(self._idle)

    def take(self) -> int:
        """A free page; it has one owner now. Raises `ValueError` if none is free."""
        if not self._free:
            raise ValueError("no page is free")
        page = self._free.pop()
        self._owners[page] = 1
        return page

    def evict(self) -> int:
        """Free the page that has been idle longest, and return it.

        Raises `ValueError` if none is idle.
        """
        if not self._idle:
            raise ValueError("no page is idle")
        page, _ = self._idle.popitem(last=False)
        self._kept[page] = False
        self._free.append(page)
        return page

    def share(self, page: int) -> None:
        """One more owner of a page that is owned or idle."""
        if 0 <= page < len(self._owners) and self._owners[page]:
            self._owners[page] += 1
        elif page in self._idle:
            del self._idle[page]
            self._owners[page] = 1
        else:
            raise ValueError(f"page {page} is free and cannot be shared")

    def release(self, page: int) -> bool:
        """One owner less; True if that was the last. The page is then free, or idle if kept."""
        owners = self._owners[page] if 0 <= page < len(self._owners) else 0
        if not owners:
            raise ValueError(f"page {page} has no owner")
        self._owners[page] = owners - 1
        if owners > 1:
            return False
        if self._kept[page]:
            self._idle[page] = None
        else:
            self._free.append(page)
        return True

    def keep(self, page: int) -> None:
        """The content of an owned page is worth keeping when its owners are gone."""
        if not 0 <= page < len(self._owners) or not self._owners[page]:
            raise ValueError(f"page {page} has no owner")
        self._kept[page] = True

    def owners(self, page: int) -> int:
        """How many owners a page has; free and idle pages have none."""
        return self._owners[page]

    def is_kept(self, page: int) -> bool:
        """Whether the page will be idle, not free, when its owners are gone."""
        return bool(self._kept[page])

    @property
    def n_kept(self) -> int:
        return sum(self._kept)

    def check(self) -> None:
        """Assert the invariants."""
        free = set(self._free)
        assert len(free) == len(self._free), "a page is on the free list twice"
        assert all(owners >= 0 for owners in self._owners)
        assert not free & self._idle.keys(), "a page is both free and idle"
        unowned = {page for page, owners in enumerate(self._owners) if not owners}
        assert free | self._idle.keys() == unowned
        assert all(self._kept[page] for page in self._idle)
        assert not any(self._kept[page] for page in free)
