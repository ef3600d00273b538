"""The measured sweep, on a server in this process: what it sees is what ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid import AsyncLLM
from pellucid.capacity.calibrate import sweep
from pellucid.capacity.client import Heard, Prompts, ask, body_of, get_json
from pellucid.capacity.fit import fit
from pellucid.capacity.observe import apart
from pellucid.core.errors import PellucidError
from pellucid.engine.client import LocalClient
from tests.python.engine.conftest import DEFAULTS
from tests.python.engine.tiny import write_model
from tests.python.server.running import Running


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AsyncLLM]:
    path: Path = write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    llm = AsyncLLM(path, **DEFAULTS, max_num_seqs=4)
    yield llm
    llm.close()


@pytest.fixture(scope="module")
def running(llm: AsyncLLM) -> Iterator[Running]:
    running = Running(LocalClient(llm))
    yield running
    running.close()


def port_of(running: Running) -> int:
    return int(running.url.rpartition(":")[2])


def test_a_sweep_sees_its_own_steps_and_a_fit_comes_of_it(
    llm: AsyncLLM, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.capacity.observe._TRAFFIC_S", 0.2)
    spec = llm.spec
    told: list[tuple[int, int]] = []
    seen = asyncio.run(sweep(port_of(running), spec, lambda done, of: told.append((done, of))))
    assert told[-1][0] == told[-1][1] == len(told) - 1
    phases = {step.phase for step in seen.steps}
    assert seen.mixed < phases
    batches = {len(step.spans) for step in seen.steps if step.phase == "4 together"}
    assert max(batches) == 4
    assert all(step.seconds > 0 for step in seen.steps)
    # Each request passed the server and came back: neither way is negative.
    assert seen.before and min(seen.before) > 0
    assert len(seen.before) == len(seen.after) > 5
    crowd = [step for step in seen.steps if step.phase == "8 users, 1"]
    assert max(len(step.spans) for step in crowd) == 4
    assert seen.mixed == {f"{n} users, {i}" for n in (1, 2, 4, 8) for i in (1, 2)}
    found = fit(spec, seen)
    assert found.steps == len(seen.steps)
    assert all(each >= 0 for each in found.seconds_each)
    times = found.times(spec)
    assert all(times.seconds(step.spans) > 0 for step in seen.steps)


def test_those_that_come_together_are_left_out() -> None:
    heard = [Heard(at) for at in (3.0, 1.0, 1.01, 2.0, 4.0, 4.0)]
    assert apart(heard) == [heard[3], heard[0]]
    assert apart(heard[:1]) == heard[:1]
    assert apart([]) == []


def test_an_answer_has_a_time_for_each_token(running: Running, llm: AsyncLLM) -> None:
    prompts = Prompts(llm.spec.vocab_size, 3)
    heard = asyncio.run(ask(port_of(running), body_of(prompts.of(9), 5)))
    assert heard.tokens == 5
    assert 1 <= len(heard.times) <= 5  # a slow reader gets several at once
    assert 0 < heard.ttft <= heard.e2e


def test_prompts_have_a_beginning_in_common_and_nothing_else() -> None:
    prompts = Prompts(4000, 1)
    a, b, other = prompts.of(20, 8), prompts.of(20, 8), prompts.of(20, 8, 1)
    assert a[:8] == b[:8] != other[:8]
    assert a[8:] != b[8:]
    assert all(1000 <= token < 4000 for token in a)
    assert all(0 <= token < 30 for token in Prompts(30, 1).of(50))


def test_a_refusal_is_said(running: Running) -> None:
    with pytest.raises(PellucidError, match="no answer"):
        asyncio.run(ask(port_of(running), body_of([1] * 100_000, 5)))
    with pytest.raises(PellucidError, match="does not tell"):
        asyncio.run(get_json(port_of(running), "/live/nothing"))
