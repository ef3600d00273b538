"""Replicas that come, go and are replaced under load: no request ends by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pellucid import LLM, SamplingParams
from pellucid.distributed.serving import replicas
from pellucid.distributed.wanted import Wanted
from tests.cluster.nodes import PATIENCE_S, until
from tests.python.engine.tiny import write_model

# Answers that take a while, so that replicas go while they have some.
ARGUMENTS = {"backend": "reference", "max_num_seqs": 4, "kv_cache_memory_bytes": 8 << 20, "seed": 0}
LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
MOST = 3
WANTED = Wanted(1, MOST, target=2.0, up_s=1.0, down_s=2.0, start_wait_s=120.0)
CROWD = 12


class Load:
    """So many clients as `wanted` says, each with its next request as the last has ended."""

    def __init__(self, client: Any, llm: LLM) -> None:
        self.answers = 0
        self._client = client
        self._llm = llm
        self._expected: dict[str, Any] = {}
        self._clients: list[asyncio.Task[None]] = []
        self._stopped: list[asyncio.Event] = []

    def clients(self, wanted: int) -> None:
        while len(self._stopped) < wanted:
            stop = asyncio.Event()
            number = len(self._stopped)
            self._stopped.append(stop)
            self._clients.append(asyncio.create_task(self._ask(f"client {number}", stop)))
        while len(self._stopped) > wanted:
            self._stopped.pop().set()

    async def more(self, answers: int) -> None:
        enough = self.answers + answers

        async def there() -> bool:
            for client in self._clients:
                if client.done():
                    client.result()  # raises what befell it
            return self.answers >= enough

        await until(there)

    async def end(self) -> None:
        self.clients(0)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._clients)

    async def _ask(self, prompt: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            stream = await self._client.stream(prompt, LONG)
            async for _ in stream:
                pass
            if prompt not in self._expected:
                self._expected[prompt] = self._llm.generate(prompt, LONG)[0].outputs
            assert stream.output().outputs == self._expected[prompt]
            self.answers += 1


def test_scale(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf", layers=12)
    llm = LLM(path, **ARGUMENTS)

    async def scenes() -> None:
        async with replicas(path, WANTED, None, ARGUMENTS, "this test") as client:
            load = Load(client, llm)
            await more_come_with_the_load(client, load)
            await all_are_replaced(client, load)
            await they_go_with_it(client, load)
            await load.end()

    asyncio.run(scenes())


async def ready(client: Any, count: int) -> Any:
    async def there() -> Any:
        reports = (await client.fleet()).reports
        return reports if len(reports) == count else None

    return await until(there)


async def more_come_with_the_load(client: Any, load: Load) -> None:
    assert len((await client.fleet()).reports) == 1
    load.clients(CROWD)
    await ready(client, MOST)

    async def all_answer() -> bool:
        reports = (await client.fleet()).reports
        return len(reports) == MOST and all(one.stats.requests_ended for one in reports)

    await until(all_answer)


async def all_are_replaced(client: Any, load: Load) -> None:
    before = {report.name for report in (await client.fleet()).reports}
    rolling = asyncio.create_task(client.roll())
    await load.more(CROWD)
    await rolling

    async def others() -> bool:
        now = {report.name for report in (await client.fleet()).reports}
        return len(now) == MOST and not now & before

    await until(others)
    assert (await client.fleet()).lost == 0


async def they_go_with_it(client: Any, load: Load) -> None:
    """Two clients go on asking, and what they asked of one that goes ends there."""
    load.clients(2)
    await ready(client, 1)
    await load.more(4)
    assert (await client.fleet()).lost == 0
