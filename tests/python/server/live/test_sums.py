"""Whatever an engine does, its records add up: pages to the pool, tokens to the answers.

Times are left out here: what a busy machine does between two readings of a clock is shown to who
looks, and is no fault of the records.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from pellucid import AsyncLLM, SamplingParams
from pellucid.core.structured import StructuredOutputs
from pellucid.engine.records import BEGINNING
from pellucid.server.live.checks import check_page_map
from pellucid.server.live.journeys import Journeys
from pellucid.server.live.window import Window
from tests.python.engine.conftest import DEFAULTS

FEW_PAGES = {"kv_cache_memory_bytes": 1 << 16, "enable_prefix_caching": False}
GUESSING = {"speculative": {"method": "ngram", "tokens": 4}}
MODES = {"plain": {}, "few pages": FEW_PAGES, "guessing": GUESSING, "both": FEW_PAGES | GUESSING}


class Looker:
    """Reads an engine's records as they come, and keeps what does not add up."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm
        self._cursor = BEGINNING
        self._window = Window(llm.about(), Journeys(), steps=10_000, ids=True)
        self.wrong: list[str] = []
        self.steps: list[dict[str, Any]] = []
        self.requests: dict[str, dict[str, Any]] = {}

    async def look(self) -> None:
        records = self._llm.records(self._cursor, 0.0)
        self._cursor = records.cursor
        told = self._window.take(records, watching=True)
        self.steps += map(json.loads, told.steps)
        self.requests |= {one["id"]: one for one in map(json.loads, told.requests)}
        _, pages = await self._llm.page_map()
        self.wrong += check_page_map(pages, self._window.limits)

    async def keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.002)

    @property
    def said(self) -> list[str]:
        """By steps and requests, times aside."""
        words = [w for step in self.steps for w in step["checks"] if " ms " not in w]
        return words + [w for one in self.requests.values() for w in one["checks"]]


async def ask(llm: AsyncLLM, number: int) -> int:
    """A request of some kind; the tokens that it gave, or -1 if it was not heard to its end."""
    draw = random.Random(number)
    params = SamplingParams(
        temperature=0.9,
        seed=number,
        max_tokens=draw.randrange(1, 90),
        n=draw.choice((1, 1, 3)),
        ignore_eos=draw.random() < 0.7,
        logprobs=draw.choice((None, 2)),
        stop=["a"] if draw.random() < 0.2 else None,
        structured_outputs=StructuredOutputs(regex="[a-z ]{3,20}") if number % 6 == 1 else None,
    )
    shared = [1 + k * 7 % 200 for k in range(40)] if draw.random() < 0.5 else []
    prompt = [*shared, *(1 + (number * 7 + k) % 200 for k in range(1 + number % 9))]
    stream = llm.stream(prompt, params, request_id=f"r{number}")
    heard = 0
    async for _ in stream:
        heard += 1
        if number % 7 == 0 and heard == 3:
            await stream.aclose()
            return -1
        if number % 11 == 0 and heard == 2:
            llm.abort(f"r{number}")
    return sum(len(one.token_ids) for one in stream.output().outputs)


@pytest.mark.parametrize("mode", MODES)
def test_records_add_up(mode: str, tiny_path: Path) -> None:
    async def scene() -> None:
        async with AsyncLLM(tiny_path, **{**DEFAULTS, **MODES[mode]}) as llm:
            looker = Looker(llm)
            looking = asyncio.create_task(looker.keep_looking())
            others = [llm.embed([1, 2, 3 + k]) for k in range(3)]
            others += [llm.prompt_logprobs([1, 2, 3 + k], 2) for k in range(3)]
            *counts, _ = await asyncio.gather(
                *(ask(llm, number) for number in range(30)), asyncio.gather(*others)
            )
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
            await llm.page_map()  # what was left is ended by now
            await looker.look()
            check(looker, counts, llm)

    asyncio.run(scene())


def check(looker: Looker, counts: list[int], llm: AsyncLLM) -> None:
    stats = llm.stats()
    assert (looker.wrong, looker.said) == ([], [])
    assert [step["id"] for step in looker.steps] == list(range(stats.steps))
    assert sum(len(step["tokens"]) for step in looker.steps) == stats.tokens_generated
    for number, count in enumerate(counts):
        record = looker.requests[f"r{number}"]
        assert record["state"] in ("finished", "cancelled")
        if count >= 0:
            assert record["output_tokens"] == count
    assert stats.pages_owned == 0
    preempted = sum(len(step["pages"]["preempted"]) for step in looker.steps)
    assert preempted == stats.preemptions
    assert bool(preempted) == (llm._engine.scheduler.limits.n_pages < 30)
    guessed = sum(len(one["guessed"]) for step in looker.steps for one in step["drafts"])
    assert guessed == stats.draft_tokens
