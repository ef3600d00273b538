"""Viewers that are slow, and sums that do not hold."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from pellucid.core.cost import Cost
from pellucid.core.record import (
    CachedPage,
    PageChanges,
    PageCounts,
    PageMap,
    PageTable,
    Phases,
    RequestRecord,
    SpanRecord,
    StepRecord,
    Turn,
)
from pellucid.engine.records import Cursor, Records
from pellucid.engine.stats import EngineStats
from pellucid.scheduling import Limits
from pellucid.server.live.checks import check_page_map, check_step
from pellucid.server.live.hub import Viewer
from pellucid.server.live.journeys import Journey, Journeys
from pellucid.server.live.window import REQUESTS, STEPS, Window

LIMITS = Limits(64, 4, 64, n_pages=10, page_size=16)
STATS = EngineStats(
    **{**dict.fromkeys(EngineStats.__dataclass_fields__, 0), "accepted_at": (), "step_sizes": ()}
)


def step(number: int = 0, **changes: object) -> StepRecord:
    record = StepRecord(
        number,
        start=1.0,
        seconds=Phases(0.001, 0.0, 0.001, 0.005, 0.001, 0.001),
        spans=(SpanRecord(7, 0, 5, 1),),
        cost=Cost(),
        changes=PageChanges(),
        tokens={7: (3,)},
        n_running=1,
        n_waiting=0,
        pages=PageCounts(6, 3, 1),
        turn=Turn(0.001, 0.009, 0.001),
    )
    return replace(record, **changes)


def request(name: str = "a", sequence: int = 7) -> RequestRecord:
    return RequestRecord(
        name, (sequence,), "running", 1.0, 1.0, None, None, None, 5, 0, 0, 0, None, (0, 0)
    )


def records(*steps: StepRecord, requests: list[RequestRecord] | None = None) -> Records:
    return Records(list(steps), requests or [], STATS, 0, Cursor(5, 0))


def test_a_step_whose_sums_hold_has_nothing_to_say() -> None:
    assert check_step(step(), LIMITS) == []
    assert check_step(step(turn=None), LIMITS) == []


def test_a_sum_that_does_not_hold_is_shown() -> None:
    [time] = check_step(step(turn=Turn(0.0, 0.005, 0.0)), LIMITS)
    assert time == "the phases take 9.000 ms of a step of 5.000 ms"
    [rest] = check_step(step(turn=Turn(0.0, 0.029, 0.0)), LIMITS)
    assert rest == "20.000 ms of 29.000 ms are in no phase"
    [pages] = check_step(step(pages=PageCounts(6, 3, 2)), LIMITS)
    assert pages == "6 free, 3 cached and 2 owned pages are 11 of the pool's 10"
    window = Window(LIMITS, 5, Journeys())
    told = window.take(records(step(pages=PageCounts(6, 3, 2))), watching=True)
    assert json.loads(told.steps[0])["checks"] == [pages]


def test_tokens_that_do_not_add_up_are_shown() -> None:
    journeys = Journeys()
    journey = Journey()
    journeys.begin("a", journey)
    journey.told_tokens = 3
    window = Window(LIMITS, 5, journeys)
    window.take(records(step(0), requests=[request()]), watching=True)
    ended = replace(
        request(), state="finished", finished=2.0, output_tokens=2, steps=(0, 1), prompt_tokens=5
    )
    told = window.take(records(requests=[ended]), watching=True)
    assert json.loads(told.requests[0])["checks"] == []  # its last step is on its way
    told = window.take(records(step(1, tokens={8: 1})), watching=True)
    assert json.loads(told.requests[0])["checks"] == [
        "the steps chose 1 tokens and the engine counts 2",
        "the response says 3 tokens and the engine counts 2",
    ]
    assert window.take(records(step(2)), watching=True).requests == []


def test_a_map_of_pages_that_does_not_add_up_says_so() -> None:
    table = PageTable(7, (1, 2), 20, 20)
    cached = CachedPage(3, None, 0, 0, ())
    assert check_page_map(PageMap(0, (table,), (cached,), (3,), ()), LIMITS) == []
    both = check_page_map(PageMap(0, (table,), (cached,), (3, 2), ()), LIMITS)
    assert both == [
        "page 2 is kept for nobody and owned at once",
        "page 2 is kept and is not in the prefix cache",
    ]
    [beyond] = check_page_map(PageMap(0, (), (), (), ((7, 10),)), LIMITS)
    assert beyond == "page 10 is none of the pool's 10"


def test_a_slow_viewer_loses_the_oldest_and_knows_how_many() -> None:
    window = Window(LIMITS, 5, Journeys())
    viewer = Viewer(window)
    for number in range(200):
        parts = window.take(records(step(number), requests=[request(f"r{number}")]), watching=True)
        viewer.put(parts, window)

    async def read() -> list[dict[str, object]]:
        viewer.end()
        return [json.loads(message) async for message in viewer]

    messages = asyncio.run(read())
    steps = [found["id"] for message in messages for found in message["steps"]]
    assert steps == list(range(steps[0], 200)) and steps[0] > 100
    # The first message, of nothing, went too; a step and a request each after that.
    assert messages[0]["dropped"] == 2 * steps[0]
    assert len(messages[0]["requests"]) == 200
    assert len(messages[1]["requests"]) == 1


def test_a_window_is_bounded() -> None:
    window = Window(LIMITS, 5, Journeys())
    for number in range(2 * REQUESTS):
        told = records(step(number), requests=[request(f"r{number}", number)])
        window.take(told, watching=False)
    whole = window.all()
    assert (len(whole.steps), len(whole.requests)) == (STEPS, REQUESTS)
    assert window.of(0) is None
    assert window.of(2 * REQUESTS - 1) is not None
    assert window.take(told, watching=False).requests == []  # nothing new of it
