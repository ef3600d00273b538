"""Lanes: threads that turn text into tokens and back, by how much text it is.

    size --> the first lane that is wide enough --> one of its threads

No text waits for one that is much longer: with one queue for all, a short question heard nothing
while ten prompts of megabytes were tokenised before it. The library that tokenises lets other
threads work meanwhile, so that lanes share the processors, and the long ones slow no other by more
than that. What its caller no longer wants is not begun.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from pellucid.core.errors import Overloaded

# Characters or ids that the first lanes are for; the last takes what is longer. The first is worth
# some tens of milliseconds, the second half a second.
WIDTHS: Final = (1 << 15, 1 << 19)
MOST_WAITING: Final = 1 << 28
"""Characters and ids in all lanes together; one more text is refused."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Lanes:
    """Threads begin when they are needed. Each keeps memory of the tokenizer's own, so that more
    than can run are of no use: the short lane has half as many as there are processors, others
    one."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        counts = [max(2, (os.cpu_count() or 2) // 2), *(1 for _ in WIDTHS)]
        self._lanes = [ThreadPoolExecutor(count, "pellucid-text") for count in counts]
        self._most_waiting = most_waiting
        self._inside = 0

    async def run(
        self,
        size: int,
        function: Callable[Given, Result],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Result:
        """What `function` returns, off the event loop; `size` is that of what it reads. Raises
        `Overloaded` when too much is waiting, and whatever it raises."""
        if self._inside and self._inside + size > self._most_waiting:
            raise Overloaded(
                f"the queue is full: {self._inside} characters are being tokenised and at most "
                f"{self._most_waiting} may be: ask again in 1 s"
            )
        place = sum(size > width for width in WIDTHS)
        call = functools.partial(function, *args, **kwargs)
        self._inside += size
        try:
            return await asyncio.get_running_loop().run_in_executor(self._lanes[place], call)
        finally:
            self._inside -= size

    def close(self) -> None:
        """What was not begun never is."""
        for lane in self._lanes:
            lane.shutdown(wait=False, cancel_futures=True)


def size_of(given: Any) -> int:
    """Characters, ids and entries in plain data, such as a prompt or a conversation."""
    size = 0
    left = [given]
    while left:
        one = left.pop()
        if isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, Mapping):
            size += len(one)
            left += one.values()
        elif isinstance(one, Sequence):
            size += len(one)
            if one and not isinstance(one[0], int):
                left += one
    return size
