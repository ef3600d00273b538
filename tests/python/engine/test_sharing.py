"""Prefixes shared between requests, tenants that share nothing, and who goes first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pellucid import LLM, AsyncLLM, BadInput, SamplingParams
from tests.python.engine.conftest import DEFAULTS
from tests.python.engine.traffic import MakeLLM

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPT = [(5 * i + 1) % 250 for i in range(60)]


def cached(llm: LLM, prompt: list[int], salt: str | None = None) -> int:
    [output] = llm.generate([prompt], PARAMS, cache_salt=salt)
    assert output.metrics is not None
    return output.metrics.cached_tokens


def test_a_prefix_is_taken_from_the_cache_and_the_metrics_say_so(make_llm: MakeLLM) -> None:
    llm = make_llm()
    assert cached(llm, PROMPT) == 0
    assert cached(llm, [*PROMPT[:40], 7, 8]) == 32
    assert cached(llm, PROMPT[:32]) == 31  # its last token is computed: its scores are wanted
    assert cached(llm, [9, *PROMPT]) == 0
    stats = llm.engine.stats()
    assert stats.prefix_hits == 63
    assert stats.pages_cached > 0


def test_tenants_share_nothing(make_llm: MakeLLM) -> None:
    llm = make_llm()
    assert cached(llm, PROMPT, "a") == 0
    assert cached(llm, PROMPT, "b") == 0
    assert cached(llm, PROMPT) == 0
    assert cached(llm, PROMPT, "a") >= 48


def test_without_the_cache_nothing_is_kept(make_llm: MakeLLM) -> None:
    llm = make_llm(enable_prefix_caching=False)
    assert cached(llm, PROMPT) == cached(llm, PROMPT) == 0
    assert llm.engine.stats().pages_cached == 0


def test_samples_of_one_prompt_compute_it_once(make_llm: MakeLLM) -> None:
    llm = make_llm()
    params = SamplingParams(n=8, temperature=1.0, seed=3, max_tokens=6, ignore_eos=True)
    [output] = llm.generate([PROMPT], params)
    positions = llm.engine.stats().positions_computed
    assert positions == 60 + 7 + 8 * 5  # the prompt, its last position for 7 more, the answers
    alone = make_llm(enable_prefix_caching=False, max_num_seqs=1).generate([PROMPT], params)
    assert output.outputs == alone[0].outputs


def test_lower_priority_runs_first(make_llm: MakeLLM) -> None:
    llm = make_llm(max_num_seqs=1)
    outputs = llm.generate([PROMPT] * 3, PARAMS, priority=[5, 0, -1])
    order = sorted(range(3), key=lambda i: outputs[i].metrics.queue_time)  # type: ignore[union-attr]
    assert order == [2, 1, 0]
    for given, message in (
        ([1], "1 priorities for 2 prompts"),
        (["x", 1], "priority must be a whole number"),
        (3, "priority must be a list"),
    ):
        with pytest.raises(BadInput, match=message):
            llm.generate(["a", "b"], PARAMS, priority=given)  # type: ignore[arg-type]


def test_both_policies_answer_alike_and_static_takes_more_steps(make_llm: MakeLLM) -> None:
    params = [
        SamplingParams(temperature=0, max_tokens=1 + 5 * (i % 4), ignore_eos=True)
        for i in range(16)
    ]
    prompts = [[i + 1] * 9 for i in range(16)]
    engines = [make_llm(policy=policy, max_num_seqs=4) for policy in ("continuous", "static")]
    continuous, static = ([o.outputs for o in llm.generate(prompts, params)] for llm in engines)
    assert continuous == static
    steps = [llm.engine.stats().steps for llm in engines]
    assert steps[0] < steps[1]


def test_streams_have_salts_and_priorities_too(tiny_path: Path) -> None:
    async def one(llm: AsyncLLM, salt: str) -> int:
        stream = llm.stream(PROMPT, PARAMS, cache_salt=salt, priority=1)
        async for _ in stream:
            pass
        metrics = stream.output().metrics
        assert metrics is not None
        return metrics.cached_tokens

    async def scene() -> list[int]:
        async with AsyncLLM(tiny_path, **DEFAULTS) as llm:
            return [await one(llm, salt) for salt in ("a", "b", "a")]

    assert asyncio.run(scene()) == [0, 0, 48]
