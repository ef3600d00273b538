"""Replicas on a cluster of two nodes: one answer from any of them, whatever ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM, BadInput, SamplingParams
from pellucid.core.errors import PromptTooLong, Unavailable
from pellucid.distributed.serving import replicas
from pellucid.distributed.wanted import Wanted
from tests.cluster.nodes import (
    PATIENCE_S,
    add_node,
    cluster_of,
    processes_of,
    signal_all,
    until,
)
from tests.python.engine.tiny import write_model

# Steps that take a while, so that what is to be met under way is.
ARGUMENTS = {"backend": "reference", "max_num_seqs": 4, "kv_cache_memory_bytes": 1 << 20, "seed": 0}
WANTED = Wanted(2, 2, start_wait_s=120.0)
LONG = SamplingParams(temperature=0, max_tokens=80, ignore_eos=True)
DRAWN = SamplingParams(temperature=1, seed=7, max_tokens=9, ignore_eos=True, logprobs=2)
CLIENTS = 40
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny.gguf")


def test_replicas(path: Path) -> None:
    """In one cluster, which takes longer to start than all this does."""
    llm = LLM(path, **ARGUMENTS)

    async def scenes() -> None:
        async with replicas(path, WANTED, None, ARGUMENTS, "this test") as client:
            await any_replica_answers_as_an_engine_in_this_process(client, llm)
            await errors_are_what_they_are(client)
            await a_prefix_is_followed(client)
            await leaving_gives_pages_back(client)
            await a_killed_replica_is_told_and_comes_back(client, llm)
            await a_node_may_go(client, llm, cluster)
            await a_node_may_be_cut_off(client, llm, cluster)

    with cluster_of(1, 1) as cluster:  # so that there is a replica on each
        asyncio.run(scenes())


async def answer(client: Any, prompt: Any, params: SamplingParams, **options: Any) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        stream = await client.stream(prompt, params, **options)
        async for _ in stream:
            pass
    return stream.output()


async def any_replica_answers_as_an_engine_in_this_process(client: Any, llm: LLM) -> None:
    prompts = [f"prompt {number % 5}" for number in range(20)]
    answers = await asyncio.gather(*(answer(client, prompt, DRAWN) for prompt in prompts))
    alone = {prompt: llm.generate(prompt, DRAWN)[0].outputs for prompt in prompts}
    for prompt, found in zip(prompts, answers, strict=True):
        assert found.outputs == alone[prompt]
    fleet = await client.fleet()
    assert len({report.process_id for report in fleet.reports}) == 2
    assert len({report.node for report in fleet.reports}) == 2
    assert all(report.stats.requests_ended for report in fleet.reports)
    several = SamplingParams(n=3, seed=5, max_tokens=6, ignore_eos=True)
    assert (await answer(client, HELLO, several)).outputs == llm.chat(HELLO, several)[0].outputs
    assert (await client.embed("hello")).embedding == llm.embed("hello")[0].embedding
    chosen = SamplingParams(
        max_tokens=20, temperature=0, structured_outputs={"choice": ["the hen", "them"]}
    )
    assert (await answer(client, "hello", chosen)).outputs == llm.generate("hello", chosen)[
        0
    ].outputs
    assert (await client.stats()).requests_ended >= 21
    assert (await client.about()).spec.name == llm.spec.name


async def errors_are_what_they_are(client: Any) -> None:
    with pytest.raises(PromptTooLong):
        await client.stream("x" * 300, LONG)
    with pytest.raises(BadInput, match="regex"):
        wrong = SamplingParams(max_tokens=20, structured_outputs={"regex": "(("})
        await client.stream("hello", wrong)
    first = await client.stream("a", LONG, request_id="same")
    with pytest.raises(BadInput, match="'same' is taken"):
        await client.stream("a", LONG, request_id="same")
    await first.aclose()


async def a_prefix_is_followed(client: Any) -> None:
    """Who holds a prompt is asked for what begins with it, and takes it from the cache."""
    short = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    for topic in "abcd":
        text = topic * 40
        await answer(client, text, short)
        found = await answer(client, text + "!", short)
        assert found.metrics.cached_tokens >= 32
        assert (await answer(client, text + "?", short, cache_salt="x")).metrics.cached_tokens == 0
    assert (await client.fleet()).placed["prefix"] >= 4


async def leaving_gives_pages_back(client: Any) -> None:
    async def at_rest() -> bool:
        stats = await client.stats()
        return not (stats.running_sequences or stats.waiting_sequences or stats.pages_owned)

    for _ in range(10):
        stream = await client.stream("hello", LONG)
        await anext(stream)
        await stream.aclose()
    stream = await client.stream("hello", LONG, request_id="unwanted")
    await anext(stream)
    await client.abort("unwanted")
    async for _ in stream:
        pass
    assert stream.output().outputs[0].finish_reason == "abort"
    assert await until(at_rest)


class Crowd:
    """Many clients at once; `begun`: some stream has tokens out."""

    def __init__(self, client: Any) -> None:
        self.prompts = [f"number {number}" for number in range(CLIENTS)]
        self.begun = asyncio.Event()
        self._client = client
        self._asked = [asyncio.create_task(self._ask(prompt)) for prompt in self.prompts]

    async def _ask(self, prompt: str) -> Any:
        stream = await self._client.stream(prompt, LONG)
        try:
            async for _ in stream:
                self.begun.set()
        except Unavailable as error:
            return error
        return stream.output().outputs

    async def lost(self, llm: LLM) -> int:
        """How many were told to ask again; the others have what they are to have, and none waits
        for ever."""
        lost = 0
        async with asyncio.timeout(PATIENCE_S):
            ends = await asyncio.gather(*self._asked)
        for prompt, found in zip(self.prompts, ends, strict=True):
            if isinstance(found, Unavailable):
                assert "ask again" in str(found)
                lost += 1
            else:
                assert found == llm.generate(prompt, LONG)[0].outputs
        return lost


async def a_killed_replica_is_told_and_comes_back(client: Any, llm: LLM) -> None:
    crowd = Crowd(client)
    await crowd.begun.wait()

    async def busy() -> Any:
        reports = (await client.fleet()).reports
        return next((one for one in reports if one.stats.running_sequences), None)

    killed = (await until(busy)).process_id
    os.kill(killed, signal.SIGKILL)
    lost = await crowd.lost(llm)

    async def back() -> bool:
        fleet = await client.fleet()
        return len(fleet.reports) == 2 and killed not in {r.process_id for r in fleet.reports}

    await until(back)
    fleet = await client.fleet()
    assert fleet.lost == lost
    assert fleet.lost + fleet.retried > 0, "the kill met nothing"
    assert fleet.started == 1
    found = await asyncio.gather(*(answer(client, prompt, DRAWN) for prompt in crowd.prompts))
    for prompt, one in zip(crowd.prompts, found, strict=True):
        assert one.outputs == llm.generate(prompt, DRAWN)[0].outputs


async def a_node_may_go(client: Any, llm: LLM, cluster: Any) -> None:
    """With the replica on it; the other answers, and as soon as there is a node again so does a
    second one."""
    [node] = cluster.others
    assert node.node_id in {report.node for report in (await client.fleet()).reports}
    await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)

    async def elsewhere() -> bool:
        reports = (await client.fleet()).reports
        return len(reports) == 2 and node.node_id not in {report.node for report in reports}

    async def again() -> Any:
        """A node's processes outlive it for a moment, and may begin what they cannot end."""
        try:
            return await answer(client, "hello", DRAWN)
        except Unavailable as error:
            assert "ask again" in str(error)
            return None

    assert (await until(again)).outputs == llm.generate("hello", DRAWN)[0].outputs
    await client.check_health()
    cluster.others[:] = [add_node(cluster, 1)]  # in this thread: it sets what is done at a signal
    await until(elsewhere)


async def a_node_may_be_cut_off(client: Any, llm: LLM, cluster: Any) -> None:
    """Nothing of it ends, and nothing comes of it any more: streams there are told so before Ray
    finds out, new ones go elsewhere, and who asks how it is need not wait."""
    [node] = cluster.others
    crowd = Crowd(client)
    await crowd.begun.wait()
    before = await client.fleet()
    signal_all(processes_of(node), signal.SIGSTOP)
    lost = await crowd.lost(llm)
    after = await client.fleet()
    assert lost == after.lost - before.lost
    assert lost + after.retried - before.retried > 0, "it met nothing"
    assert [report.node for report in after.reports] != [node.node_id]
    assert (await answer(client, "hello", DRAWN)).outputs == llm.generate("hello", DRAWN)[0].outputs
