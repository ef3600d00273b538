"""Pace: how often a reader is told what is new."""

from __future__ import annotations

import asyncio
from typing import Final

PERIOD_S: Final = 1 / 30


class Pace:
    """Lets one task through 30 times a second."""

    def __init__(self) -> None:
        self._due = 0.0

    async def wait(self) -> None:
        now = asyncio.get_running_loop().time()
        self._due = max(self._due + PERIOD_S, now)
        await asyncio.sleep(self._due - now)
