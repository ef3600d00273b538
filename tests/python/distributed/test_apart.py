"""Calls in a thread of their own: what they give, and that none keeps anybody."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pellucid.distributed.apart import apart


def test_it_gives_what_the_call_gives() -> None:
    assert asyncio.run(apart(lambda: 7)) == 7


def test_it_raises_what_the_call_raises() -> None:
    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        asyncio.run(apart(fail))


def test_one_that_never_returns_keeps_nobody() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError):
        asyncio.run(apart(never.wait, 0.01))  # and the loop has ended
    never.set()
