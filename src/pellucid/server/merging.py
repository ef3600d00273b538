"""Several streams of one request as one, and streams with errors as streams of bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment, RequestMetrics, RequestOutput
from pellucid.engine.client import AnswerStream
from pellucid.server.errors import ApiError, api_error_of

logger = logging.getLogger("pellucid.server")

_WAITING: Final = 64  # increments that may wait for a slow reader, of several streams together


async def increments(
    streams: Sequence[AnswerStream],
) -> AsyncGenerator[tuple[int, Increment], None]:
    """The increments of all streams as they come, each with its stream's number.

    Ends every stream when it is left. Raises the first error of any.
    """
    try:
        if len(streams) == 1:
            async for increment in streams[0]:
                yield 0, increment
            return
        async for numbered in _several(streams):
            yield numbered
    finally:
        for stream in streams:
            await stream.aclose()


async def _several(streams: Sequence[AnswerStream]) -> AsyncIterator[tuple[int, Increment]]:
    queue: asyncio.Queue[tuple[int, Increment] | BaseException | None] = asyncio.Queue(_WAITING)

    async def pump(number: int, stream: AnswerStream) -> None:
        try:
            async for increment in stream:
                await queue.put((number, increment))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(pump(*numbered)) for numbered in enumerate(streams)]
    open_ = len(tasks)
    try:
        while open_:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                open_ -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def outputs(streams: Sequence[AnswerStream]) -> list[RequestOutput]:
    """What each stream gives in all."""
    async for _ in increments(streams):
        pass
    return [stream.output() for stream in streams]


def metrics_of(streams: Sequence[AnswerStream]) -> list[RequestMetrics]:
    """The metrics of streams that have ended."""
    found = [stream.output().metrics for stream in streams]
    return [metrics for metrics in found if metrics is not None]


Refusal = Callable[[PellucidError], Awaitable[ApiError]]


async def with_errors(
    source: AsyncGenerator[bytes, None],
    refusal: Refusal,
    said: Callable[[ApiError], bytes],
) -> AsyncGenerator[bytes, None]:
    """`source`, and if it fails what `said` makes of the error, as its end."""
    try:
        async for part in source:
            yield part
    except PellucidError as error:
        yield said(await refusal(error))
    except Exception as error:
        logger.exception("a stream failed")
        yield said(api_error_of(error))
    finally:
        await source.aclose()
