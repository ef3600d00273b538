"""An engine in another process answers as one in this process does, and survives its death."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM, AsyncLLM, BadInput, PellucidError, SamplingParams
from pellucid.core.errors import PromptTooLong
from pellucid.engine.process.client import ProcessClient
from pellucid.engine.process.supervisor import Patience
from pellucid.engine.stats import EngineStats
from tests.python.engine.conftest import DEFAULTS

PARAMS = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, logprobs=2)
LONG = SamplingParams(temperature=0, max_tokens=80, ignore_eos=True)
HELLO = [{"role": "user", "content": "hello"}]


class Engine:
    """A client in an event loop that a thread of its own runs, for several tests."""

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.client = self.run(ProcessClient.start(path, **DEFAULTS))

    def run(self, scene: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(scene, self._loop).result(120)

    def close(self) -> None:
        self.run(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Iterator[Engine]:
    started = Engine(tiny_path)
    yield started
    started.close()


def test_it_answers_as_an_engine_in_this_process(engine: Engine, llm: LLM) -> None:
    async def scene(client: ProcessClient) -> None:
        for prompt in "hello", {"prompt": "hello"}, [1, 2, 3]:
            stream = await client.stream(prompt, PARAMS)
            async for _ in stream:
                pass
            assert stream.output().outputs == llm.generate(prompt, PARAMS)[0].outputs
        several = SamplingParams(n=3, seed=5, max_tokens=6, ignore_eos=True)
        stream = await client.stream(HELLO, several, request_id="talk")
        assert stream.prompt_token_ids == await client.chat_token_ids(HELLO)
        async for _ in stream:
            pass
        output = stream.output()
        assert (output.request_id, output.finished) == ("talk", True)
        assert output.outputs == llm.chat(HELLO, several)[0].outputs
        assert output.metrics is not None
        tokens = stream.prompt_token_ids
        async with AsyncLLM(client.model.path, **DEFAULTS) as other:
            expected = await other.prompt_logprobs(tokens, 2)
        assert await client.prompt_logprobs(tokens, 2) == expected
        assert (await client.embed("hello")).embedding == llm.embed("hello")[0].embedding
        stats = await client.stats()
        assert (stats.running_sequences, stats.requests_ended) == (0, 4)

    engine.run(scene(engine.client))


def test_many_streams_are_each_what_they_are_alone(engine: Engine, llm: LLM) -> None:
    prompts = [f"prompt {i}" for i in range(40)]

    async def scene(client: ProcessClient) -> None:
        async def ask(prompt: str) -> list[int]:
            stream = await client.stream(prompt, PARAMS)
            async for _ in stream:
                pass
            return stream.output().outputs[0].token_ids

        answers = await asyncio.gather(*map(ask, prompts))
        alone = [output.outputs[0].token_ids for output in llm.generate(prompts, PARAMS)]
        assert answers == alone

    engine.run(scene(engine.client))


def test_errors_cross_as_what_they_are(engine: Engine) -> None:
    async def scene(client: ProcessClient) -> None:
        with pytest.raises(PromptTooLong):
            await client.stream("x" * 300, PARAMS)
        with pytest.raises(BadInput, match="is empty"):
            await client.stream([], PARAMS)
        with pytest.raises(BadInput, match="pooling"):
            await client.embed("hello", pooling="median")
        first = await client.stream("a", LONG, request_id="same")
        with pytest.raises(BadInput, match="'same' is taken"):
            await client.stream("a", LONG, request_id="same")
        await first.aclose()
        again = await client.stream("a", PARAMS, request_id="same")
        async for _ in again:
            pass

    engine.run(scene(engine.client))


def test_grammars_are_compiled_where_they_are_used(engine: Engine, llm: LLM) -> None:
    chosen = SamplingParams(max_tokens=20, structured_outputs={"choice": ["the hen", "them"]})
    wrong = SamplingParams(max_tokens=20, structured_outputs={"regex": "(("})

    async def scene(client: ProcessClient) -> None:
        stream = await client.stream("hello", replace(chosen, temperature=0))
        async for _ in stream:
            pass
        expected = llm.generate("hello", replace(chosen, temperature=0))[0]
        assert stream.output().outputs == expected.outputs
        assert expected.outputs[0].text in ("the hen", "them")
        with pytest.raises(BadInput, match="regex"):
            await client.stream("hello", wrong)

    engine.run(scene(engine.client))


async def at_rest(client: ProcessClient) -> EngineStats:
    """The numbers once nothing runs; read beside a step, they may be of before and after it."""
    while True:
        stats = await client.stats()
        if not (stats.running_sequences or stats.waiting_sequences or stats.pages_owned):
            return stats


def test_leaving_a_stream_gives_its_pages_back(engine: Engine) -> None:
    async def scene(client: ProcessClient) -> None:
        before = await at_rest(client)
        for _ in range(200):
            stream = await client.stream("hello", LONG)
            await anext(stream)
            await stream.aclose()
        aborted = await client.stream("hello", LONG, request_id="unwanted")
        await anext(aborted)
        await client.abort("unwanted")
        async for _ in aborted:
            pass
        assert aborted.output().outputs[0].finish_reason == "abort"
        after = await at_rest(client)  # full pages may have been kept for their content
        pages = after.pages_free + after.pages_cached
        assert pages == before.pages_free + before.pages_cached

    engine.run(scene(engine.client))


def test_leaving_off_a_score_ends_it_there(engine: Engine) -> None:
    """Of what is asked and given up at once hardly anything is computed: what comes after it would
    else wait for all of it."""
    prompts = [[1 + i] * 90 for i in range(100)]

    async def scene(client: ProcessClient) -> None:
        before = await at_rest(client)
        asked = [asyncio.create_task(client.prompt_logprobs(prompt)) for prompt in prompts]
        await asyncio.sleep(0)  # all of them are on their way
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert all(task.cancelled() for task in asked)
        await client.prompt_logprobs([1, 2, 3])
        after = await at_rest(client)
        assert after.positions_computed - before.positions_computed < 90 * 100 // 2
        pages = after.pages_free + after.pages_cached
        assert pages == before.pages_free + before.pages_cached

    engine.run(scene(engine.client))


def test_a_killed_engine_is_told_and_started_again(engine: Engine, llm: LLM) -> None:
    async def scene(client: ProcessClient) -> None:
        streams = [await client.stream("hello", LONG) for _ in range(4)]
        for stream in streams:
            await anext(stream)
        call = asyncio.create_task(client.embed("hello" * 10))
        await asyncio.sleep(0)
        killed = await client.process_id()
        os.kill(killed, signal.SIGKILL)
        for stream in streams:
            with pytest.raises(PellucidError, match=r"signal 9 \(SIGKILL\).*ask again"):
                async for _ in stream:
                    pass
        with pytest.raises(PellucidError, match="SIGKILL"):
            await client.check_health()
        await asyncio.gather(call, return_exceptions=True)
        # A request that comes meanwhile waits for the engine that is starting.
        again = await client.stream("hello", PARAMS)
        async for _ in again:
            pass
        assert again.output().outputs == llm.generate("hello", PARAMS)[0].outputs
        await client.check_health()
        assert client.restarts == 1
        assert await client.process_id() != killed

    engine.run(scene(engine.client))


def test_what_has_not_begun_outlives_its_engine(engine: Engine, llm: LLM) -> None:
    async def scene(client: ProcessClient) -> None:
        os.kill(await client.process_id(), signal.SIGSTOP)  # so that nothing begins
        kept = [await client.stream("hello", replace(LONG, seed=i, temperature=1)) for i in (1, 2)]
        left, aborted = [await client.stream("hello", LONG, request_id=name) for name in "la"]
        reading = asyncio.create_task(anext(left))
        before = client.restarts
        os.kill(await client.process_id(), signal.SIGKILL)
        while client.restarts == before:
            await asyncio.sleep(0.001)
        reading.cancel()  # while the next engine is starting
        await client.abort("a")
        with pytest.raises(PellucidError, match="being started again"):
            await anext(aborted)
        await asyncio.gather(reading, return_exceptions=True)
        for i, stream in enumerate(kept, 1):
            async for _ in stream:
                pass
            expected = llm.generate("hello", replace(LONG, seed=i, temperature=1))[0]
            assert stream.output().outputs == expected.outputs
        await at_rest(client)

    engine.run(scene(engine.client))


def test_a_request_that_two_engines_died_of_is_not_asked_a_third_time(engine: Engine) -> None:
    async def scene(client: ProcessClient) -> None:
        os.kill(await client.process_id(), signal.SIGSTOP)
        stream = await client.stream("hello", LONG)
        os.kill(await client.process_id(), signal.SIGKILL)
        before = client.restarts
        while client.restarts == before:
            await asyncio.sleep(0.01)
        connection = await client._supervisor.connection()
        os.kill(connection.process.pid, signal.SIGKILL)
        with pytest.raises(PellucidError, match="ask again"):
            async for _ in stream:
                pass

    engine.run(scene(engine.client))


def test_an_engine_that_hangs_does_not_hang_who_has_left_off(tiny_path: Path) -> None:
    async def scene() -> None:
        patience = Patience(abort_s=0.05, answer_s=0.05)
        client = await ProcessClient.start(tiny_path, patience=patience, **DEFAULTS)
        os.kill(await client.process_id(), signal.SIGSTOP)
        stream = await client.stream("hello", LONG, request_id="stuck")
        await client.abort("stuck")
        with pytest.raises(PellucidError, match="does not answer"):
            await anext(stream)
        with pytest.raises(PellucidError, match=r"not answered for 0\.05 s"):
            await client.check_health()
        os.kill(await client.process_id(), signal.SIGKILL)
        await client.close()

    asyncio.run(scene())


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00 nothing")
    with pytest.raises(BadInput, match=r"broken\.gguf"):
        asyncio.run(ProcessClient.start(broken))


def test_closing_ends_streams_and_the_process(engine: Engine) -> None:
    async def scene(client: ProcessClient) -> None:
        stream = await client.stream("hello", LONG)
        await anext(stream)
        child = await client.process_id()
        await client.close()
        with pytest.raises(PellucidError):
            async for _ in stream:
                pass
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        with pytest.raises(BadInput, match="closed"):
            await client.stream("hello", PARAMS)

    engine.run(scene(engine.client))
