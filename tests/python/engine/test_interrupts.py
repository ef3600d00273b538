"""Ctrl-C on any line: the call ends, and the engine answers the next one as if nothing had been."""

from __future__ import annotations

import dis
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pellucid.cache
import pellucid.engine
import pellucid.scheduling
from pellucid import LLM, PellucidError, SamplingParams
from pellucid.engine.generation import Generation
from pellucid.engine.stream import Stream
from tests.python.engine.traffic import MakeLLM

_STRUCK = tuple(
    str(Path(str(package.__file__)).parent)
    for package in (pellucid.cache, pellucid.engine, pellucid.scheduling)
)
_ROOT = [(7 * i + 3) % 250 for i in range(18)]
_PROMPTS = [{"prompt_token_ids": [*_ROOT[: 18 - 5 * (i % 3)], i]} for i in range(6)]
_WAYS = [
    SamplingParams(n=1 + i % 2, temperature=i % 2, max_tokens=3 + 4 * i, ignore_eos=True, seed=i)
    for i in range(6)
]


def _is_safe(frame: FrameType) -> bool:
    """Whether Python runs no signal's handler before this line: at a `try:` that computes nothing,
    and where a block is over and its `with` lets go, by a call with None three times."""
    code, at = frame.f_code.co_code, frame.f_lasti
    leaves = code[at : at + 6 : 2] == bytes(3 * [dis.opmap["LOAD_CONST"]])
    return leaves or code[at] == dis.opmap["NOP"]


class Strike:
    """Raises KeyboardInterrupt, as the handler of a signal does, before the lines of those numbers
    that run; counts the lines of an engine."""

    def __init__(self, *at: int) -> None:
        self.at = at
        self.lines = 0

    def __enter__(self) -> Strike:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_STRUCK):
            return None
        if event == "line" and not _is_safe(frame):
            self.lines += 1
            if self.lines in self.at:
                raise KeyboardInterrupt
        return self._trace


@pytest.fixture(scope="module")
def crowded(make_llm: MakeLLM) -> LLM:
    """Few places and few pages: some wait, some are preempted."""
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 20, "page_size": 4, "max_model_len": 48}
    return make_llm(**limits, kv_cache_memory_bytes=14 << 10)


def answers(llm: LLM) -> list[list[list[int]]]:
    outputs = llm.generate(_PROMPTS, _WAYS)
    return [[answer.token_ids for answer in output.outputs] for output in outputs]


@pytest.fixture(scope="module")
def expected(crowded: LLM) -> list[list[list[int]]]:
    found = answers(crowded)
    assert crowded.engine.stats().preemptions
    return found


@pytest.fixture(scope="module")
def n_lines(crowded: LLM, expected: object) -> int:
    with Strike() as strike:
        answers(crowded)
    return strike.lines


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.floats(0, 1), st.integers(1, 400))
def test_ctrl_c_on_any_line(
    crowded: LLM, expected: list[list[list[int]]], n_lines: int, where: float, again: int
) -> None:
    first = 1 + int(where * (n_lines - 1))
    try:  # and once more, by somebody who is impatient
        with Strike(first, first + again):
            answers(crowded)
    except KeyboardInterrupt:
        pass
    assert answers(crowded) == expected
    scheduler = crowded.engine.scheduler
    scheduler.check()
    assert scheduler.idle
    assert not scheduler.page_counts().owned


def test_an_answer_that_was_cut_in_its_end_says_so(
    crowded: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream whose last token was chosen and never told ends with an error."""
    params = SamplingParams(temperature=0, max_tokens=1)
    request = crowded.front.request(crowded.front.prompt("a"), params)
    stream = Stream(crowded.engine, request)

    def strike(self: Generation, now: float) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Generation, "_ended", strike)
    with pytest.raises(KeyboardInterrupt):
        crowded.engine.step()
    with pytest.raises(PellucidError, match="interrupted"):
        list(stream)
    assert crowded.engine.idle


def test_ctrl_c_on_any_line_of_an_operation(crowded: LLM, expected: object) -> None:
    """Of one that changes nothing, every line: whether it is over is known wherever it was cut."""
    engine = crowded.engine
    with Strike() as strike:
        engine.waiting()
    assert strike.lines > 5
    for line in range(1, strike.lines + 1):
        with pytest.raises(KeyboardInterrupt), Strike(line):
            engine.waiting()
        assert not engine._operations.under_way
    assert answers(crowded) == expected


def test_a_plan_cut_short_ends_every_request(crowded: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    other = crowded.stream("hello", SamplingParams(max_tokens=20, ignore_eos=True))
    next(other)
    memory = crowded.engine.scheduler._memory

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(memory, "grow", interrupted)  # it has shared pages, and taken none
    with pytest.raises(KeyboardInterrupt):
        crowded.generate("x")
    with pytest.raises(PellucidError, match="ask again"):
        list(other)
    assert crowded.engine.scheduler.idle
    crowded.engine.scheduler.check()


def test_a_stream_dropped_while_a_plan_is_made_ends_after_the_step(
    make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the garbage collector runs there."""
    llm = make_llm(page_size=4)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    [output] = llm.generate("hello", params)
    dropped, kept = llm.stream("abcd", params), llm.stream("hello", params)
    running = llm.engine.scheduler._running
    grow = running.grow

    def dropping(sequence: Any) -> None:
        dropped.close()
        grow(sequence)

    monkeypatch.setattr(running, "grow", dropping)  # both come to need a page in the same step
    tokens = [token for increment in kept for token in increment.token_ids]
    assert tokens == output.outputs[0].token_ids
    assert dropped.output().outputs[0].finish_reason == "abort"
    llm.engine.scheduler.check()
    assert llm.engine.scheduler.idle
