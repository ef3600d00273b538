"""Signs of life in a stream, and what becomes of a task that gets none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from pellucid.distributed.beats import with_beats
from pellucid.distributed.patience import Patience, SilenceError

SOON = 0.001  # seconds: what is waited for is the event that follows


async def letters(gate: asyncio.Event, ended: asyncio.Event) -> AsyncGenerator[int, None]:
    try:
        yield 1
        await gate.wait()
        yield 2
    finally:
        ended.set()


def test_beats_come_while_nothing_else_does() -> None:
    async def listen() -> list[int | None]:
        gate, ended = asyncio.Event(), asyncio.Event()
        found: list[int | None] = []
        async for letter in with_beats(letters(gate, ended), SOON):
            found.append(letter)
            if found.count(None) == 3:
                gate.set()
        assert ended.is_set()
        return found

    found = asyncio.run(listen())
    assert [letter for letter in found if letter is not None] == [1, 2]
    assert found[0] == 1
    assert found.count(None) >= 3


def test_leaving_leaves_what_is_listened_to() -> None:
    async def leave(at: int | None) -> bool:
        ended = asyncio.Event()
        async with aclosing(with_beats(letters(asyncio.Event(), ended), SOON)) as found:
            async for letter in found:
                if letter == at:
                    break
        return ended.is_set()

    assert asyncio.run(leave(1))
    assert asyncio.run(leave(None))


def test_an_error_comes_through() -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise OSError("gone")

    async def listen() -> None:
        async for _ in with_beats(failing()):
            pass

    with pytest.raises(OSError, match="gone"):
        asyncio.run(listen())


def test_silence_ends_the_wait_for_ever() -> None:
    async def listen() -> None:
        async with Patience(SOON) as patience:
            patience.heard()
            await asyncio.Event().wait()

    with pytest.raises(SilenceError, match="no sign of life"):
        asyncio.run(listen())


def test_whoever_is_heard_may_take_as_long_as_it_likes() -> None:
    async def listen() -> int:
        looks = 0
        async with Patience(100 * SOON) as patience:
            for _ in range(300):
                patience.heard()
                await asyncio.sleep(SOON)
                looks += 1
        await asyncio.sleep(200 * SOON)  # and it is over with the block
        return looks

    assert asyncio.run(listen()) == 300


def test_a_cancellation_from_over_there_is_no_cancellation_here() -> None:
    async def listen() -> None:
        async with Patience(60):
            raise asyncio.CancelledError

    with pytest.raises(SilenceError, match="cancelled"):
        asyncio.run(listen())


def test_a_cancellation_from_here_is_one() -> None:
    async def cancelled() -> bool:
        async def listen() -> None:
            async with Patience(60) as patience:
                patience.heard()
                await asyncio.Event().wait()

        task = asyncio.create_task(listen())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(cancelled())
