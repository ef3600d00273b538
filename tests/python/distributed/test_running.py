"""One request and the replicas it is asked of, without any: whatever befalls them, it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.exceptions import RayActorError

from pellucid.core.errors import PellucidError, Unavailable
from pellucid.core.outputs import Increment, RequestMetrics
from pellucid.core.params import SamplingParams
from pellucid.distributed.placement import Placement, Route
from pellucid.distributed.report import Report
from pellucid.distributed.running import Running, Tally
from pellucid.engine.process.letters import Failure, fields_of
from pellucid.engine.request import Request
from pellucid.engine.stats import EngineStats

NAMES = ["a", "b", "c"]
SOON = 0.01
METRICS = RequestMetrics(*(0 for _ in fields(RequestMetrics)))
REPORT = Report("a", "node", 1, EngineStats(*(12 * (0,))))
Script = Callable[[], AsyncGenerator[Any, None]]


class Contact:
    """Replicas that do what the scripts say, one for each try; `asked` are their names."""

    def __init__(self, *scripts: Script) -> None:
        self.placement = Placement(4, 8, 2)
        self.silence_s = SOON
        self.asked: list[str] = []
        self.forgotten: list[str] = []
        self.reports: list[Report] = []
        self._scripts = iter(scripts)

    async def talk(self, route: Route, method: str, sent: Request) -> AsyncGenerator[Any, None]:
        assert method == "answer"
        self.asked.append(route.rank(NAMES)[0])
        yield self.asked[-1]
        async for message in next(self._scripts)():
            yield message

    def told(self, report: Report) -> None:
        self.reports.append(report)

    def forget(self, name: str) -> None:
        self.forgotten.append(name)


def letters(token: int, last: bool) -> list[Any]:
    increment = Increment(0, "x", [token], finish_reason="length" if last else None)
    increment.metrics = METRICS if last else None
    return [fields_of(increment)]


async def whole() -> AsyncGenerator[Any, None]:
    yield None
    yield letters(1, False)
    yield letters(2, True)


async def cancelled() -> AsyncGenerator[Any, None]:
    """As Ray says of what it cancels itself."""
    raise asyncio.CancelledError
    yield


async def cancelled_in_the_middle() -> AsyncGenerator[Any, None]:
    yield letters(1, False)
    raise asyncio.CancelledError


async def silent() -> AsyncGenerator[Any, None]:
    await asyncio.Event().wait()
    yield


async def silent_in_the_middle() -> AsyncGenerator[Any, None]:
    yield letters(1, False)
    await asyncio.Event().wait()


async def dead() -> AsyncGenerator[Any, None]:
    raise RayActorError
    yield


async def over() -> AsyncGenerator[Any, None]:
    """It ends as if that were all."""
    return
    yield


async def refused() -> AsyncGenerator[Any, None]:
    yield Failure.of(PellucidError("no"))


async def told_at_the_end() -> AsyncGenerator[Any, None]:
    yield [REPORT, *letters(1, True)]


def asked_of(*scripts: Script) -> tuple[list[int] | PellucidError, Contact, Tally]:
    async def ask() -> tuple[list[int] | PellucidError, Contact, Tally]:
        contact, tally = Contact(*scripts), Tally()
        running = Running(contact, tally, Request("r", (1, 2, 3, 4, 5), SamplingParams(), 0, 9))  # type: ignore[arg-type]
        tokens: list[int] = []
        with suppress(asyncio.CancelledError):
            await running.task
        while running.arrivals.letters:
            letter = running.arrivals.letters.popleft()
            if isinstance(letter, PellucidError):
                return letter, contact, tally
            tokens += letter.token_ids
        return tokens, contact, tally

    return asyncio.run(ask())


@pytest.mark.parametrize("ended", [cancelled, silent, dead, over])
def test_one_of_which_nothing_has_come_is_asked_elsewhere_once(ended: Script) -> None:
    found, contact, tally = asked_of(ended, whole)
    assert found == [1, 2]
    assert len(set(contact.asked)) == 2
    assert contact.forgotten == contact.asked[:1]
    assert (tally.retried, tally.lost) == (1, 0)
    found, contact, tally = asked_of(ended, ended, whole)
    assert isinstance(found, Unavailable)
    assert "two replicas ended" in str(found)
    assert len(set(contact.asked)) == 2


@pytest.mark.parametrize("ended", [cancelled_in_the_middle, silent_in_the_middle])
def test_one_that_has_begun_is_told(ended: Script) -> None:
    found, contact, tally = asked_of(ended, whole)
    assert isinstance(found, Unavailable)
    assert "ask again" in str(found)
    assert len(contact.asked) == 1
    assert (tally.retried, tally.lost) == (0, 1)


def test_what_the_engine_says_of_it_is_told() -> None:
    found, contact, tally = asked_of(refused, whole)
    assert str(found) == "no"
    assert (tally.retried, tally.lost) == (0, 0)
    assert contact.placement.load(contact.asked[0]) == 0


def test_what_its_replica_counts_comes_with_the_end() -> None:
    found, contact, _ = asked_of(told_at_the_end)
    assert found == [1]
    assert contact.reports == [REPORT]
