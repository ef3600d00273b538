"""Patience: how long a stream from another process may be silent."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

# Silence is counted in so many looks: a stall of this process, however long, is one of them.
_LOOKS: Final = 10


class SilenceError(Exception):
    """Whoever was listened to gives no sign of life."""


class Patience:
    """An `async with` block in which a task listens to another process.

    Between one `heard` and the next, `silence_s` may pass; after that whatever the task waits for
    is cancelled, and the block raises `SilenceError`. It counts from the first `heard`. A
    cancellation that comes from what is waited for, and that nobody asked of this task, raises
    `SilenceError` too: else it would end the task without a word.
    """

    def __init__(self, silence_s: float) -> None:
        self._every_s = silence_s / _LOOKS
        self._looks = 0
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    def heard(self) -> None:
        """Here is a sign of life."""
        self._looks = 0
        if self._timer is None:
            self._again()

    async def __aenter__(self) -> Patience:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancels = task.cancelling()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        cancels = self._task.uncancel() if self._over else self._task.cancelling()
        if isinstance(error, asyncio.CancelledError) and cancels <= self._cancels:
            why = f"no sign of life for {_LOOKS * self._every_s:g} s" if self._over else "cancelled"
            raise SilenceError(why) from error

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def _look(self) -> None:
        self._looks += 1
        if self._looks < _LOOKS:
            self._again()
        else:
            self._over = True
            self._task.cancel()
