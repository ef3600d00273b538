"""Records cross between processes whole: what arrives is what was sent, by other names."""

from __future__ import annotations

from array import array
from dataclasses import replace

from pellucid import LLM, SamplingParams
from pellucid.core.record import Owned, RoundRecord, Turn
from pellucid.engine.process.frames import Frames, pack
from pellucid.engine.process.letters import records_of, told_of
from pellucid.engine.records import BEGINNING, Records, read_records
from tests.python.engine.traffic import MakeLLM


def recorded(llm: LLM) -> Records:
    """Of a few requests, with all that a step may tell."""
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    llm.generate([[1, 2, 3] * 9, [1, 2, 3] * 9, [4, 5]], params)
    for number, step in enumerate(llm.engine.ledger._entries):
        step.turn = Turn(0.1, 0.2 + number, 0.3)
    records = read_records(llm.engine, BEGINNING)
    records.steps[0].waiting = (("a", "no place"),)
    records.steps[1].rounds = (RoundRecord(0, (7, 8), 1),)
    records.steps[2].stamps = array("d", [0.25, 0.5])
    assert any(step.changes.owned for step in records.steps)
    assert isinstance(records.steps[0].changes.owned[0], Owned)
    return records


def test_what_is_told_is_what_was_recorded(make_llm: MakeLLM) -> None:
    records = recorded(make_llm(max_num_batched_tokens=24))
    [told] = Frames().feed(pack(told_of(records)))
    crossed = records_of(told, lambda name: name)
    assert crossed == records
    assert type(crossed.steps[0].spans[0]) is type(records.steps[0].spans[0])
    assert type(crossed.steps[0].pages) is type(records.steps[0].pages)


def test_requests_have_the_names_of_this_side(make_llm: MakeLLM) -> None:
    records = recorded(make_llm())
    crossed = records_of(told_of(records), lambda name: f"{name}!")
    assert crossed.requests == [replace(one, id=f"{one.id}!") for one in records.requests]
    assert crossed.steps[0].waiting == (("a!", "no place"),)
