"""No text waits for one that is much longer; waits are for events, never for seconds."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import Overloaded
from pellucid.engine.lanes import WIDTHS, Lanes, size_of

LONG = WIDTHS[-1] + 1


def test_short_texts_pass_long_ones() -> None:
    async def scene() -> None:
        lanes, end = Lanes(), threading.Event()
        long = [asyncio.ensure_future(lanes.run(LONG, end.wait)) for _ in range(10)]
        try:
            assert [await lanes.run(width, str, width) for width in WIDTHS] == [*map(str, WIDTHS)]
            assert not any(one.done() for one in long)
        finally:
            end.set()
        assert await asyncio.gather(*long) == [True] * 10
        lanes.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_what_nobody_waits_for_is_not_begun() -> None:
    async def scene() -> None:
        lanes, begun, end, seen = Lanes(), threading.Event(), threading.Event(), []

        def hold() -> None:
            begun.set()
            end.wait()

        first = asyncio.ensure_future(lanes.run(LONG, hold))
        await asyncio.to_thread(begun.wait)
        second = asyncio.ensure_future(lanes.run(LONG, seen.append, 2))
        third = asyncio.ensure_future(lanes.run(LONG, seen.append, 3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        end.set()
        await asyncio.gather(first, third)
        assert seen == [3]
        lanes.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_more_than_may_wait_is_refused_and_room_comes_back() -> None:
    async def scene() -> None:
        lanes, end = Lanes(most_waiting=100), threading.Event()
        first = asyncio.ensure_future(lanes.run(60, end.wait))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="60 characters are being tokenised"):
            await lanes.run(41, str)
        assert await lanes.run(40, str) == ""
        end.set()
        await first
        assert await lanes.run(1000, str) == ""  # alone any text may come
        with pytest.raises(ZeroDivisionError):
            await lanes.run(100, divmod, 1, 0)
        assert await lanes.run(100, str) == ""
        lanes.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


PLAIN = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_size_is_of_all_that_is_read(given: Any) -> None:
    def characters(value: Any) -> int:
        if isinstance(value, str):
            return len(value)
        if isinstance(value, dict):
            return sum(map(characters, value.values()))
        mixed = isinstance(value, list) and value and not isinstance(value[0], int)
        return sum(map(characters, value)) if mixed else 0

    assert size_of(given) >= characters(given)
    assert size_of([1, 2, 3]) == 3
