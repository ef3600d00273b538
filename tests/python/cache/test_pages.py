"""Pages and tables: the invariants under any order of operations."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pellucid.cache import PagePool, PageTable


class Pages(RuleBasedStateMachine):
    """Tables come, grow, share pages and go; a plain model of owners stands beside the pool."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(12)
        self.tables: list[PageTable] = []
        self.shared: list[int] = []

    @rule(capacity=st.integers(0, 14))
    def make(self, capacity: int) -> None:
        if capacity > self.pool.n_unreserved:
            before = self.pool.n_unreserved
            with pytest.raises(ValueError, match="to be had"):
                PageTable(self.pool, 4, capacity)
            assert self.pool.n_unreserved == before
        else:
            self.tables.append(PageTable(self.pool, 4, capacity))

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), n_tokens=st.integers(0, 60))
    def cover(self, data: st.DataObject, n_tokens: int) -> None:
        table = data.draw(st.sampled_from(self.tables))
        before = table.pages
        if n_tokens > 4 * table.capacity:
            with pytest.raises(ValueError, match="need"):
                table.cover(n_tokens)
            assert table.pages == before
        else:
            table.cover(n_tokens)
            assert len(table.pages) == max(len(before), -(-n_tokens // 4))
            assert table.pages[: len(before)] == before

    @precondition(lambda self: any(table.pages for table in self.tables))
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        held = [page for table in self.tables for page in table.pages]
        page = data.draw(st.sampled_from(held))
        self.pool.share(page)
        self.shared.append(page)

    @precondition(lambda self: self.shared)
    @rule()
    def unshare(self) -> None:
        self.pool.release(self.shared.pop())

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        table.release()
        assert table.pages == ()
        self.tables.remove(table)

    @invariant()
    def owners_are_who_we_think(self) -> None:
        self.pool.check()
        owners = [page for table in self.tables for page in table.pages] + self.shared
        for page in range(12):
            assert self.pool.owners(page) == owners.count(page)
        assert self.pool.n_free == 12 - len(set(owners))
        promised = sum(table.capacity - len(table.pages) for table in self.tables)
        assert self.pool.n_unreserved == self.pool.n_free - promised

    def teardown(self) -> None:
        for table in self.tables:
            table.release()
        while self.shared:
            self.pool.release(self.shared.pop())
        assert self.pool.n_unreserved == self.pool.n_free == 12


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_pages_just_used_are_used_again_first() -> None:
    pool = PagePool(8)
    table = PageTable(pool, 4, 3)
    table.cover(12)
    assert table.pages == (0, 1, 2)
    table.release()
    again = PageTable(pool, 4, 2)
    again.cover(8)
    assert again.pages == (0, 1)


@pytest.mark.parametrize("page", [-1, 3, 99])
def test_a_page_without_an_owner_cannot_be_shared_or_released(page: int) -> None:
    pool = PagePool(4)
    for operation in (pool.share, pool.release):
        with pytest.raises(ValueError, match="no owner"):
            operation(page)


def test_nothing_is_taken_that_was_not_promised() -> None:
    pool = PagePool(4)
    with pytest.raises(ValueError, match="0 promised"):
        pool.take()
    with pytest.raises(ValueError, match="at least one page"):
        PagePool(0)
