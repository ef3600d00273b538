"""Whoever watches an engine elsewhere is told of every step once, and asks for none of them."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM, PellucidError, SamplingParams
from pellucid.core.errors import Unavailable
from pellucid.core.record import Turn
from pellucid.engine.pace import PERIOD_S
from pellucid.engine.process import feed as feed_module
from pellucid.engine.process.client import ProcessClient
from pellucid.engine.process.feed import Feed
from pellucid.engine.process.frames import Frames, pack
from pellucid.engine.process.letters import Fields, records_of
from pellucid.engine.process.news import News
from pellucid.engine.records import (
    ATTENTION_S,
    BEGINNING,
    Cursor,
    Records,
    costs_of,
    describe_engine,
    read_records,
)
from tests.python.engine.conftest import DEFAULTS
from tests.python.engine.traffic import MakeLLM

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


class Watched:
    """A plain engine whose steps a feed tells, at moments of our choosing."""

    def __init__(self, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.told: list[Fields] = []
        self.llm = llm
        self.feed = Feed(llm.engine, self.told.append)
        self._costs = costs_of(describe_engine(llm.engine))
        monkeypatch.setattr(feed_module, "monotonic", lambda: self.now)

    def run(self, prompt: list[int]) -> None:
        """A request whose steps have all been turned."""
        self.llm.generate([prompt], PARAMS)
        for entry in self.llm.engine.ledger._entries:
            entry.turn = entry.turn or Turn(0.0, 1.0, 0.0)

    def read(self) -> list[Records]:
        """What was told, as it arrives."""
        news = News(lambda _: None)
        for one in Frames().feed(b"".join(map(pack, self.told))):
            news.receive(one)
        told = asyncio.run(all_of(news, len(self.told)))
        self.told.clear()
        return [records_of(one, lambda name: name, self._costs) for one in told]


async def all_of(news: News, n: int) -> list[Fields]:
    # The first is asked for, so that what came is not taken for left over.
    news._renewed = float("inf")
    return [await news.next(BEGINNING, None) for _ in range(n)]


@pytest.fixture
def watched(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(make_llm(), monkeypatch)


def test_nothing_is_told_while_nobody_watches(watched: Watched) -> None:
    watched.run([1, 2, 3])
    watched.feed.step_done(watched.now)
    assert watched.feed.rest() is None
    watched.feed.renew(BEGINNING, None)
    watched.read()
    watched.run([4, 5, 6])
    watched.now += ATTENTION_S
    watched.feed.step_done(watched.now)
    assert watched.feed.rest() is None
    assert watched.told == []


def test_what_is_told_is_what_a_look_finds(watched: Watched) -> None:
    engine = watched.llm.engine
    watched.run([1, 2, 3])
    watched.feed.renew(BEGINNING, None)
    watched.run([4, 5, 6])
    watched.feed.step_done(watched.now + PERIOD_S)
    first, second = watched.read()
    everything = read_records(engine, BEGINNING)
    assert first.steps + second.steps == everything.steps
    assert first.requests + second.requests == everything.requests
    assert second.stats == everything.stats
    assert second.cursor.steps == everything.cursor.steps


def test_it_is_told_thirty_times_a_second_and_the_rest_later(watched: Watched) -> None:
    watched.feed.renew(BEGINNING, None)
    begun = watched.now
    for step in range(140):
        watched.now = begun + 0.007 * step
        watched.feed.step_done(watched.now)
    assert 29 <= len(watched.told) <= 31
    watched.read()
    watched.run([1, 2])
    pause = watched.feed.rest()
    assert pause is not None and 0 <= pause <= PERIOD_S
    watched.now += pause
    watched.feed.step_done(watched.now)
    assert watched.read()[0].steps
    assert watched.feed.rest() is None


def test_one_who_comes_back_is_told_from_where_he_was(watched: Watched) -> None:
    watched.run([1, 2, 3])
    watched.feed.renew(BEGINNING, None)
    [seen] = watched.read()
    watched.run([4, 5, 6])
    watched.feed.renew(BEGINNING, None)  # he still watches: it goes on
    [more] = watched.read()
    assert more.steps[0].number == seen.steps[-1].number + 1
    watched.now += ATTENTION_S
    watched.feed.renew(seen.cursor, None)
    assert watched.read() == [read_records(watched.llm.engine, seen.cursor)]


def test_a_look_between_leaves_no_step_to_be_seen_twice(watched: Watched) -> None:
    watched.run([1, 2, 3])
    looked = read_records(watched.llm.engine, BEGINNING)
    watched.run([4, 5, 6])
    told = read_records(watched.llm.engine, BEGINNING)
    fresh = told.beyond(looked.cursor)
    assert looked.steps + fresh.steps == told.steps
    assert fresh.beyond(looked.cursor) is fresh
    assert told.beyond(Cursor(1, 10**9)) is told  # of another engine
    assert looked.cursor.or_later(told.cursor) == told.cursor.or_later(looked.cursor)
    assert told.cursor.or_later(Cursor(1, 10**9)) == told.cursor


def test_every_step_of_a_child_comes_once_and_in_order(tiny_path: Path) -> None:
    async def scene() -> None:
        client = await ProcessClient.start(tiny_path, **DEFAULTS)
        try:
            await told_of_all(client)
            (await client._supervisor.connection()).kill()
            with pytest.raises(Unavailable):
                while True:
                    await client.news(BEGINNING)
        finally:
            await client.close()

    asyncio.run(scene())


async def told_of_all(client: ProcessClient) -> None:
    found: list[Records] = [await client.news(BEGINNING)]

    async def ask(i: int) -> None:
        stream = await client.stream([1 + i, 2, 3], PARAMS, request_id=f"r{i}")
        async for _ in stream:
            pass

    asking = asyncio.gather(*map(ask, range(6)))
    while not asking.done() or found[-1].cursor.steps < (await client.stats()).steps:
        found.append(await client.news(found[-1].cursor))
    await asking
    steps = [step for records in found for step in records.steps]
    assert steps == (await client.records(BEGINNING)).steps
    assert [step.number for step in steps] == list(range(len(steps)))
    ended = {one.id for records in found for one in records.requests if one.state == "finished"}
    assert ended == {f"r{i}" for i in range(6)}
    assert sum(records.dropped for records in found) == 0


def told(*numbers: int) -> Fields:
    """News of steps of those numbers."""
    return (list(numbers), [], (1,) if numbers == (0,) else None, 0, None, None)


def test_news_that_nobody_reads_are_bounded_and_counted() -> None:
    async def scene() -> None:
        sent: list[Any] = []
        news = News(sent.append)
        waiting = asyncio.ensure_future(news.next(BEGINNING, 0.2))
        await asyncio.sleep(0)
        assert sent == [("watch", 0, BEGINNING, 0.2)]
        news.receive(told(0))
        assert await waiting == told(0)
        for number in range(1, 101):
            news.receive(told(number))
        first = await news.next(BEGINNING, 0.2)
        assert first[2] == (1,)  # the stats that were told last
        [number] = first[0]
        assert first[3] == number - 1 > 0  # of those before it nothing is left
        rest = [await news.next(BEGINNING, 0.2) for _ in range(number, 100)]
        assert list(itertools.chain(*(one[0] for one in rest))) == list(range(number + 1, 101))
        assert not any(one[3] for one in rest)
        assert len(sent) == 1
        waiting = asyncio.ensure_future(news.next(BEGINNING, None))  # asks for something else
        await asyncio.sleep(0)
        assert sent[1:] == [("watch", 0, BEGINNING, None)]
        news.lost(PellucidError("it ended"))
        with pytest.raises(PellucidError, match="it ended"):
            await waiting

    asyncio.run(scene())
