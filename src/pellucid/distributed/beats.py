"""Beats: a sign of life in a stream in which nothing else comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")

BEAT_S: Final = 1.0


async def with_beats(
    letters: AsyncGenerator[T, None], every_s: float = BEAT_S
) -> AsyncGenerator[T | None, None]:
    """What comes of `letters`, and None whenever nothing has for `every_s`. They are asked for the
    next as somebody asks here; whoever leaves here leaves there too."""
    waiting: asyncio.Future[T] | None = None
    try:
        while True:
            waiting = asyncio.ensure_future(anext(letters))
            while not (await asyncio.wait({waiting}, timeout=every_s))[0]:
                yield None
            try:
                letter = waiting.result()
            except StopAsyncIteration:
                return
            yield letter
    finally:
        if waiting is not None and waiting.cancel():
            with suppress(asyncio.CancelledError, Exception):
                await waiting
        await letters.aclose()
