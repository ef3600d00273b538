"""Calls that may never return, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")


async def apart(call: Callable[[], Value], within_s: float | None = None) -> Value:
    """What `call` returns or raises. Raises `TimeoutError` if that takes longer than `within_s`:
    the thread is left to itself then, and keeps nobody from leaving, as one of the event loop's
    own would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Value] = loop.create_future()

    def run() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = call()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_settle, future, value, error)

    threading.Thread(target=run, name="pellucid-apart", daemon=True).start()
    async with asyncio.timeout(within_s):
        return await future


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
