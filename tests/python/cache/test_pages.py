"""The page pool: its invariants under any order of operations."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pellucid.cache import PagePool

N_PAGES = 6


class Pages(RuleBasedStateMachine):
    """Pages are taken, shared, kept, released and evicted; a plain model stands beside the pool."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(N_PAGES)
        self.owned: list[int] = []  # once for each owner
        self.kept: set[int] = set()
        self.idle: list[int] = []

    @property
    def free(self) -> set[int]:
        return set(range(N_PAGES)) - set(self.owned) - set(self.idle)

    @rule()
    def take(self) -> None:
        if not self.free:
            with pytest.raises(ValueError, match="no page is free"):
                self.pool.take()
            return
        page = self.pool.take()
        assert page in self.free
        self.owned.append(page)

    @rule(page=st.integers(-1, N_PAGES))
    def share(self, page: int) -> None:
        if page not in self.owned and page not in self.idle:
            with pytest.raises(ValueError, match="cannot be shared"):
                self.pool.share(page)
            return
        self.pool.share(page)
        if page in self.idle:
            self.idle.remove(page)
        self.owned.append(page)

    @rule(page=st.integers(-1, N_PAGES))
    def release(self, page: int) -> None:
        if page not in self.owned:
            with pytest.raises(ValueError, match="no owner"):
                self.pool.release(page)
            return
        self.owned.remove(page)
        last = page not in self.owned
        assert self.pool.release(page) == last
        if last and page in self.kept:
            self.idle.append(page)

    @rule(page=st.integers(-1, N_PAGES))
    def keep(self, page: int) -> None:
        if page not in self.owned:
            with pytest.raises(ValueError, match="no owner"):
                self.pool.keep(page)
            return
        self.pool.keep(page)
        self.kept.add(page)

    @precondition(lambda self: not self.idle)
    @rule()
    def evict_nothing(self) -> None:
        with pytest.raises(ValueError, match="no page is idle"):
            self.pool.evict()

    @precondition(lambda self: self.idle)
    @rule()
    def evict(self) -> None:
        oldest = self.idle.pop(0)
        self.kept.remove(oldest)
        assert self.pool.evict() == oldest

    @invariant()
    def pages_are_what_we_think(self) -> None:
        self.pool.check()
        for page in range(N_PAGES):
            assert self.pool.owners(page) == self.owned.count(page)
            assert self.pool.is_kept(page) == (page in self.kept)
        assert self.pool.n_free == len(self.free)
        assert self.pool.n_idle == len(self.idle)
        assert self.pool.n_available == len(self.free) + len(self.idle)


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_pages_just_used_are_used_again_first() -> None:
    pool = PagePool(8)
    assert [pool.take() for _ in range(3)] == [0, 1, 2]
    for page in (2, 1, 0):
        pool.release(page)
    assert [pool.take() for _ in range(2)] == [0, 1]


def test_a_pool_has_pages() -> None:
    with pytest.raises(ValueError, match="at least one page"):
        PagePool(0)
