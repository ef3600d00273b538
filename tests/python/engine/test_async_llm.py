"""What a user of `AsyncLLM` meets: streams in event loops and their ends; an engine that sleeps."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM, AsyncLLM, BadInput, PellucidError, PromptTooLong, SamplingParams
from pellucid.core.outputs import Increment
from pellucid.core.record import StepRecord
from pellucid.engine.async_stream import AsyncStream
from tests.python.engine.conftest import DEFAULTS

ENDLESS = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


@pytest.fixture
def async_llm(tiny_path: Path) -> Iterator[AsyncLLM]:
    llm = AsyncLLM(tiny_path, **DEFAULTS)
    yield llm
    llm.close()


def ways(i: int) -> SamplingParams:
    return SamplingParams(
        temperature=0.8, seed=i, max_tokens=1 + i % 9, n=1 + i % 2, logprobs=i % 3
    )


def prompt_of(i: int) -> list[int]:
    return [1 + (i * 7 + k) % 200 for k in range(1 + i % 30)]


async def quiet(llm: AsyncLLM) -> None:
    """Until the engine has nothing to do."""
    while not llm._engine.idle:
        await asyncio.sleep(0)


def unused_pages(llm: AsyncLLM) -> bool:
    stats = llm.stats()
    llm._engine.scheduler.check()
    return llm._engine.idle and stats.pages_owned == 0


def test_hundreds_of_streams_each_get_what_they_would_alone(async_llm: AsyncLLM, llm: LLM) -> None:
    """Together, each by its own task; the answers are those of the plain engine."""

    async def one(i: int) -> tuple[list[Increment], Any]:
        stream = async_llm.stream(prompt_of(i), ways(i))
        return [increment async for increment in stream], stream.output()

    async def everyone() -> list[tuple[list[Increment], Any]]:
        return await asyncio.gather(*map(one, range(300)))

    found = asyncio.run(everyone())
    expected = llm.generate([prompt_of(i) for i in range(300)], [ways(i) for i in range(300)])
    for (increments, output), plain in zip(found, expected, strict=True):
        assert output.outputs == plain.outputs
        assert output.finished
        for answer in plain.outputs:
            own = [part for part in increments if part.index == answer.index]
            assert "".join(part.text for part in own) == answer.text
        assert [part.metrics is not None for part in increments] == [
            *[False] * (len(increments) - 1),
            True,
        ]
    assert unused_pages(async_llm)
    assert async_llm.stats().requests_ended == 300


def test_generate_gives_what_there_is_so_far(async_llm: AsyncLLM, llm: LLM) -> None:
    async def texts() -> list[str]:
        return [
            output.outputs[0].text async for output in async_llm.generate("hello", ENDLESS, "mine")
        ]

    seen = asyncio.run(texts())
    whole = llm.generate("hello", ENDLESS)[0].outputs[0].text
    assert seen[-1] == whole
    assert all(whole.startswith(text) for text in seen)


async def _break(llm: AsyncLLM) -> None:
    async for _ in llm.stream("hello", ENDLESS):
        break
    gc.collect()


async def _cancel(llm: AsyncLLM) -> None:
    started = asyncio.Event()

    async def read() -> None:
        async for _ in llm.stream("hello", ENDLESS):
            started.set()

    task = asyncio.create_task(read())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _leave_the_block(llm: AsyncLLM) -> None:
    async with llm.stream("hello", ENDLESS) as stream:
        await anext(stream)
    assert [increment async for increment in stream] == []


async def _never_look(llm: AsyncLLM) -> None:
    llm.stream("hello", ENDLESS)
    gc.collect()


async def _leave_generate(llm: AsyncLLM) -> None:
    outputs = llm.generate("hello", ENDLESS)
    await anext(outputs)
    await outputs.aclose()


async def _give_up_scores(llm: AsyncLLM) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await llm.logits([1] * 50)


@pytest.mark.parametrize(
    "leave", [_break, _cancel, _leave_the_block, _never_look, _leave_generate, _give_up_scores]
)
def test_whoever_leaves_ends_the_request(
    async_llm: AsyncLLM, leave: Callable[[AsyncLLM], Awaitable[None]]
) -> None:
    async def scene() -> None:
        await leave(async_llm)
        steps = async_llm.stats().steps
        async_llm._runner.post(lambda: None)
        await quiet(async_llm)
        assert async_llm.stats().steps <= steps + 2  # not the sixty it asked for

    asyncio.run(scene())
    assert unused_pages(async_llm)


def test_a_second_reader_of_a_stream_is_refused_and_the_first_reads_on(
    async_llm: AsyncLLM,
) -> None:
    async def read(stream: AsyncStream) -> list[Increment]:
        return [increment async for increment in stream]

    async def main() -> None:
        stream = async_llm.stream("abc", ENDLESS)
        first = asyncio.create_task(read(stream))
        while not stream._arrivals.awaited:
            await asyncio.sleep(0)
        with pytest.raises(BadInput, match="another task"):
            await anext(stream)
        assert sum(len(increment.token_ids) for increment in await first) == ENDLESS.max_tokens

    asyncio.run(main())


def test_a_request_is_ended_by_its_id(async_llm: AsyncLLM) -> None:
    async def scene() -> list[Increment]:
        stream = async_llm.stream("hello", ENDLESS, request_id="mine")
        first = await anext(stream)
        with pytest.raises(BadInput, match="'mine' is taken"):
            async_llm.stream("other", ENDLESS, request_id="mine")
        async_llm.abort("another")
        async_llm.abort("mine")
        rest = [increment async for increment in stream]
        assert stream.output().outputs[0].finish_reason == "abort"
        again = async_llm.stream("hello", ENDLESS, request_id="mine")
        assert len([increment async for increment in again]) == 60
        return [first, *rest]

    increments = asyncio.run(scene())
    assert increments[-1].finish_reason == "abort"
    assert increments[-1].metrics is not None
    assert len(increments) < 60
    assert unused_pages(async_llm)


def test_errors_reach_their_own_stream(async_llm: AsyncLLM, llm: LLM) -> None:
    nothing_left = SamplingParams(logit_bias=dict.fromkeys(range(264), -100.0), n=2)

    async def scene() -> None:
        with pytest.raises(PromptTooLong):
            async_llm.stream([1] * 100)
        with pytest.raises(BadInput, match="264 is no token id"):
            await async_llm.logits([264])
        good, bad = async_llm.stream("hello", ENDLESS), async_llm.stream("x", nothing_left)
        with pytest.raises(PellucidError, match="no token is left"):
            async for _ in bad:
                pass
        assert [increment async for increment in bad] == []
        async for _ in good:
            pass
        assert good.output().outputs == llm.generate("hello", ENDLESS)[0].outputs

    asyncio.run(scene())
    assert unused_pages(async_llm)


def test_a_step_that_fails_ends_its_requests_and_not_the_engine(
    async_llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = async_llm._engine._passes.logits
    failing = True

    def faulty(plan: Any) -> Any:
        if failing:
            raise MemoryError("no room")
        return forward(plan)

    monkeypatch.setattr(async_llm._engine._passes, "logits", faulty)

    async def ask() -> int:
        return len([increment async for increment in async_llm.stream("hello", ENDLESS)])

    async def scene() -> None:
        nonlocal failing
        for _ in range(2):
            with pytest.raises(PellucidError, match="failed in a step: MemoryError: no room"):
                await ask()
        failing = False
        async_llm.check_health()
        assert await ask() == 60
        failing = True
        for _ in range(3):
            with pytest.raises(PellucidError, match="no room"):
                await ask()
        with pytest.raises(PellucidError, match="3 steps in a row"):
            await ask()
        with pytest.raises(PellucidError, match="3 steps in a row"):
            async_llm.check_health()

    asyncio.run(scene())


def test_closing_ends_what_runs(async_llm: AsyncLLM) -> None:
    async def scene() -> None:
        streams = [async_llm.stream(prompt_of(i), ENDLESS) for i in range(40)]
        await anext(streams[0])
        scores = asyncio.create_task(async_llm.logits([1, 2, 3]))
        await asyncio.sleep(0)
        async_llm.close()
        for stream in streams:
            with pytest.raises(PellucidError, match="closed"):
                async for _ in stream:
                    pass
        try:
            assert (await scores).shape[0] == 3
        except PellucidError as error:
            assert "closed" in str(error)
        for ask in (lambda: async_llm.stream("x"), async_llm.check_health):
            with pytest.raises(BadInput, match="closed"):
                ask()
        with pytest.raises(BadInput, match="closed"):
            await async_llm.logits([1])

    asyncio.run(scene())
    assert not async_llm._runner._thread.is_alive()
    async_llm.close()


def test_two_event_loops_share_an_engine(async_llm: AsyncLLM, llm: LLM) -> None:
    expected = [llm.generate(prompt_of(i), ways(i))[0].outputs for i in range(20)]
    found: dict[int, Any] = {}

    async def one(i: int) -> None:
        stream = async_llm.stream(prompt_of(i), ways(i))
        async for _ in stream:
            pass
        found[i] = stream.output().outputs

    async def some(first: int) -> None:
        await asyncio.gather(*(one(i) for i in range(first, 20, 2)))

    threads = [threading.Thread(target=lambda i=i: asyncio.run(some(i))) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(20)] == expected
    assert unused_pages(async_llm)


def test_a_loop_that_was_closed_keeps_nothing_running(async_llm: AsyncLLM) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> Any:
        return async_llm.stream("hello", ENDLESS)

    stream = loop.run_until_complete(begin())
    loop.close()
    asyncio.run(quiet(async_llm))
    assert unused_pages(async_llm)
    assert not stream.finished

    async def ask() -> int:
        return len([increment async for increment in async_llm.stream("hello", ENDLESS)])

    assert asyncio.run(ask()) == 60


def test_an_idle_engine_sleeps(async_llm: AsyncLLM) -> None:
    """It wakes when something is asked of it, and at no other time."""

    async def ask() -> None:
        async for _ in async_llm.stream("hello", ENDLESS):
            pass

    assert async_llm._runner.wakeups == 0
    asyncio.run(ask())
    first = async_llm._runner.wakeups
    assert 1 <= first <= 2  # asked, and perhaps told that the stream is read to its end
    for _ in range(200):
        asyncio.run(asyncio.sleep(0))
    assert async_llm._runner.wakeups <= 2
    asyncio.run(ask())
    assert async_llm._runner.wakeups <= first + 2


def test_scores_beside_streams(async_llm: AsyncLLM, llm: LLM) -> None:
    async def scene() -> None:
        stream = async_llm.stream("hello", ENDLESS)
        both = await asyncio.gather(async_llm.logits([1, 2, 3]), async_llm.logits([4] * 50))
        assert both[0].tobytes() == llm.logits([1, 2, 3]).tobytes()
        assert both[1].tobytes() == llm.logits([4] * 50).tobytes()
        async for _ in stream:
            pass
        assert stream.output().outputs == llm.generate("hello", ENDLESS)[0].outputs

    asyncio.run(scene())


def test_an_engine_that_nobody_holds_ends(tiny_path: Path) -> None:
    llm = AsyncLLM(tiny_path, **DEFAULTS)
    thread = llm._runner._thread
    del llm
    gc.collect()
    thread.join()


def test_who_waits_says_why_and_steps_are_told(tiny_path: Path) -> None:
    async def scene() -> None:
        async with AsyncLLM(tiny_path, **DEFAULTS, max_num_seqs=1) as llm:
            records: list[StepRecord] = []
            stop = llm.subscribe(records.append)
            first = llm.stream("hello", ENDLESS, request_id="first")
            second = llm.stream("x", ENDLESS, request_id="second")
            await anext(first)
            [(waiting, reason)] = await llm.waiting()
            assert waiting == "second"
            assert "1" in reason
            for stream in first, second:
                async for _ in stream:
                    pass
            assert await llm.waiting() == []
            assert sum(len(record.tokens) for record in records) == 120
            stop()
            seen = len(records)
            async for _ in llm.stream("hello", ENDLESS):
                pass
            await llm.waiting()
            assert len(records) == seen

    asyncio.run(scene())


def test_what_goes_wrong_where_requests_come_in_harms_one(
    async_llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = async_llm._engine.scheduler.add

    def faulty(sequence: Any) -> None:
        if sequence.n_prompt == 3:
            raise ValueError("a mistake of ours")
        add(sequence)

    monkeypatch.setattr(async_llm._engine.scheduler, "add", faulty)

    async def scene() -> None:
        with pytest.raises(PellucidError, match="ValueError: a mistake of ours"):
            await anext(async_llm.stream([1, 2, 3], ENDLESS))
        assert len([part async for part in async_llm.stream([1, 2], ENDLESS)]) == 60

    asyncio.run(scene())


def test_records_go_on_from_a_cursor(async_llm: AsyncLLM) -> None:
    async def scene() -> None:
        first = async_llm.records()
        assert first.steps == [] and first.requests == []
        async for _ in async_llm.stream([1, 2, 3], ways(8)):
            pass
        await quiet(async_llm)
        async_llm.close()  # its thread has ended: the last step was turned
        second = async_llm.records(first.cursor)
        assert [step.number for step in second.steps] == list(range(9))
        assert all(step.turn is not None for step in second.steps)
        assert second.dropped == 0
        assert async_llm.records(second.cursor).steps == []
        strangers = second.cursor._replace(epoch=1)
        assert async_llm.records(strangers).steps == second.steps

    asyncio.run(scene())
