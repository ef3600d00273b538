"""Viewers that are slow, and sums that do not hold."""

from __future__ import annotations

import asyncio
import itertools
import json
from array import array
from dataclasses import replace

import pytest

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
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs.stages import Part, Stage
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.scheduling import Limits
from pellucid.server.live.checks import check_page_map, check_step
from pellucid.server.live.hub import Viewer
from pellucid.server.live.journeys import Journey, Journeys
from pellucid.server.live.window import REQUESTS, STEPS, Window
from tests.python.server.fake import NO_STATS

LIMITS = Limits(64, 4, 64, n_pages=10, page_size=16)
LAYER = LayerSpec(2, 1, 16, 32, 0.25)
SPEC = ModelSpec("llama", 32, 100, 64, 1e-5, (LAYER, LAYER))
ABOUT = EngineAbout(
    SPEC, LIMITS, (), "native", "avx2", 2, "f16", 16, 256, process_id=1, resident=1,
    speculation=None, epoch=5,
    monotonic=0.0, wall=0.0,
)  # fmt: skip


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
    return Records(list(steps), requests or [], NO_STATS, 0, Cursor(5, 0))


def test_a_step_whose_sums_hold_has_nothing_to_say() -> None:
    assert check_step(step(), LIMITS) == []
    assert check_step(step(turn=None), LIMITS) == []


def test_a_sum_that_does_not_hold_is_shown() -> None:
    [time] = check_step(step(turn=Turn(0.0, 0.005, 0.0)), LIMITS)
    assert time == "the phases take 9.000 ms of a step of 5.000 ms"
    [rest] = check_step(step(turn=Turn(0.0, 0.029, 0.0)), LIMITS)
    assert rest == "20.000 ms of 29.000 ms are in no phase"
    [parts] = check_step(step(stamps=array("d", [0.004, 0.002])), LIMITS)
    assert parts == "the parts of the forward pass take 6.000 ms of its 5.000 ms"
    [pages] = check_step(step(pages=PageCounts(6, 3, 2)), LIMITS)
    assert pages == "6 free, 3 cached and 2 owned pages are 11 of the pool's 10"
    window = Window(ABOUT, Journeys())
    told = window.take(records(step(pages=PageCounts(6, 3, 2))), watching=True)
    assert json.loads(told.steps[0])["checks"] == [pages]


def test_tokens_that_do_not_add_up_are_shown() -> None:
    journeys = Journeys()
    journey = Journey()
    journeys.begin("a", journey, b"", b"")
    journey.told_tokens = 3
    window = Window(ABOUT, journeys)
    window.take(records(step(0), requests=[request()]), watching=True)
    ended = replace(
        request(), state="finished", finished=2.0, output_tokens=2, steps=(0, 1), prompt_tokens=5
    )
    told = window.take(records(requests=[ended]), watching=True)
    assert json.loads(told.requests[0])["checks"] == []  # its last step is on its way
    told = window.take(records(step(1, tokens={8: (1,)})), watching=True)
    assert json.loads(told.requests[0])["checks"] == [
        "the steps chose 1 tokens and the engine counts 2",
        "the response says 3 tokens and the engine counts 2",
    ]
    assert window.take(records(step(2)), watching=True).requests == []


def test_looks_that_cross_do_not_turn_a_request_back() -> None:
    window = Window(ABOUT, Journeys())
    running = replace(request(), output_tokens=4)
    ended = replace(running, state="finished", finished=2.0, output_tokens=5)
    again = replace(request(), queued=3.0)  # the same name, asked for once more
    for late in replace(running, output_tokens=3), running, replace(ended, finished=None):
        window = Window(ABOUT, Journeys())
        window.take(records(requests=[running, ended]), watching=True)
        assert window.take(records(requests=[late]), watching=True).requests == []
        assert window.request("a")["state"] == "finished"
    assert len(window.take(records(requests=[again]), watching=True).requests) == 1
    assert window.take(records(requests=[ended]), watching=True).requests == []


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
    window = Window(ABOUT, Journeys())
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


STAGES = (
    Stage("embedding", None, (Part("embedding", n_out=32, nbytes=64),)),
    Stage("qkv", 0, (Part("linear", n_in=32, n_out=64, nbytes=2048),)),
    Stage("attention", 0, (Part("store", layer=0), Part("attend", layer=0))),
    Stage("head", None, (Part("linear", True, 32, 100, nbytes=6400),)),
)


def test_spans_are_the_stamps_with_their_costs() -> None:
    window = Window(ABOUT, Journeys())
    seconds = array("d", [0.001, 0.002, 0.0005, 0.001])
    first, last = step(0, stamps=seconds), step(1, stamps=seconds)
    told = window.take(replace(records(first, last), stages=STAGES), watching=True)
    assert json.loads(told.message(0, 5, spans=False))["spans"] == []
    spans = json.loads(told.message(0, 5, spans=True))["spans"]
    assert [span["op"] for span in spans] == ["embedding", "qkv", "attention", "head"]
    assert {span["step"] for span in spans} == {1}
    begin = last.start + 0.002  # schedule and lower
    assert spans[0]["start"] == pytest.approx(begin + 0.005 - 0.0045, abs=1e-6)
    for before, after in itertools.pairwise(spans):
        assert after["start"] == pytest.approx(before["start"] + before["ms"] / 1000, abs=1e-6)
    linear, attention, head = (span["operations"] for span in spans[1:])
    assert (linear, head) == (2 * 5 * 32 * 64, 2 * 1 * 32 * 100)
    assert attention == 4 * 2 * 16 * (1 + 2 + 3 + 4 + 5)
    per_position = 2 * 16 * 2  # key and value of one head, two bytes each
    assert [span["bytes"] for span in spans] == [5 * 64, 2048, 2 * 5 * per_position, 6400]
    assert len(json.loads(window.all().message(0, 5, spans=True))["spans"]) == 4
    soon = window.take(records(step(2, start=1.01, stamps=seconds)), watching=True)
    assert soon.spans == []  # there were some a hundredth of a second before
    later = window.take(records(step(3, start=1.3, stamps=seconds)), watching=True)
    assert len(json.loads(later.message(0, 5, spans=True))["spans"]) == 4
    foreign = step(4, start=2.0, stamps=array("d", [0.1]))
    assert window.take(records(foreign), watching=True).spans == []


def test_a_window_is_bounded() -> None:
    window = Window(ABOUT, Journeys())
    for number in range(2 * REQUESTS):
        told = records(step(number), requests=[request(f"r{number}", number)])
        window.take(told, watching=False)
    whole = window.all()
    assert (len(whole.steps), len(whole.requests)) == (STEPS, REQUESTS)
    assert window.of(0) is None
    assert window.of(2 * REQUESTS - 1) is not None
    assert window.take(told, watching=False).requests == []  # nothing new of it
