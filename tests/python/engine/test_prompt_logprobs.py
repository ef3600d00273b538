"""How likely each token of a prompt is, whatever else runs; priority and salt reach the pages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import LLM, AsyncLLM, BadInput, SamplingParams
from pellucid.sampling.logprobs import log_softmax
from tests.python.engine.conftest import DEFAULTS

PROMPT = [(7 * i) % 250 for i in range(60)]


def likelihoods(path: Path, prompts: list[list[int]], count: int, **arguments: Any) -> list[Any]:
    async def ask() -> list[Any]:
        async with AsyncLLM(path, **{**DEFAULTS, **arguments}) as llm:
            asking = [llm.prompt_logprobs(prompt, count) for prompt in prompts]
            return await asyncio.gather(*asking)

    return asyncio.run(ask())


def test_they_are_those_of_the_logits(tiny_path: Path, llm: LLM) -> None:
    [found] = likelihoods(tiny_path, [PROMPT], 3)
    rows = llm.logits(PROMPT)
    assert found[0] is None and len(found) == len(PROMPT)
    for token, entries, row in zip(PROMPT[1:], found[1:], rows, strict=False):
        expected = log_softmax(row)
        assert next(iter(entries)) == token
        assert entries[token].logprob == expected[token]
        top = sorted(entries.values(), key=lambda entry: entry.rank)[:3]
        assert [entry.rank for entry in top] == [1, 2, 3]
        assert top[0].logprob == np.max(expected[:261])  # the rows after are no tokens


def test_chunks_and_company_change_nothing(tiny_path: Path) -> None:
    prompts = [PROMPT[:n] for n in (1, 2, 17, 59, 60)]
    alone = [likelihoods(tiny_path, [prompt], 2)[0] for prompt in prompts]
    assert likelihoods(tiny_path, prompts, 2, max_num_batched_tokens=7, max_num_seqs=3) == alone


def test_a_generated_token_is_as_likely_as_when_it_was_chosen(tiny_path: Path, llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=8, logprobs=2, ignore_eos=True)
    [output] = llm.generate([PROMPT], params)
    answer = output.outputs[0]
    [found] = likelihoods(tiny_path, [PROMPT + answer.token_ids], 2)
    assert answer.logprobs is not None
    for token, then, now in zip(answer.token_ids, answer.logprobs, found[60:], strict=True):
        assert (then[token].logprob, then[token].rank) == (now[token].logprob, now[token].rank)


def test_what_is_no_prompt_is_refused(tiny_path: Path) -> None:
    for prompt in ([], [99999]):
        with pytest.raises(BadInput):
            likelihoods(tiny_path, [prompt], 1)


@pytest.mark.parametrize(
    ("name", "value"), [("priority", 1.5), ("priority", True), ("cache_salt", 7)]
)
def test_a_priority_or_a_salt_that_is_none_is_refused(
    tiny_path: Path, name: str, value: Any
) -> None:
    async def ask() -> None:
        async with AsyncLLM(tiny_path, **DEFAULTS) as llm:
            llm.stream(PROMPT, None, **{name: value})

    with pytest.raises(BadInput, match=name):
        asyncio.run(ask())


def test_they_reach_the_scheduler(tiny_path: Path) -> None:
    async def ask() -> list[Any]:
        async with AsyncLLM(tiny_path, **DEFAULTS) as llm:
            added: list[Any] = []
            add = llm._engine.scheduler.add
            llm._engine.scheduler.add = lambda s: (added.append(s), add(s))[1]  # type: ignore[method-assign]
            params = SamplingParams(max_tokens=1)
            for salt in (None, "s", b"s"):
                async for _ in llm.stream(PROMPT, params, priority=-2, cache_salt=salt):
                    pass
            return [(sequence.priority, sequence.salt) for sequence in added]

    assert asyncio.run(ask()) == [(-2, b""), (-2, b"s"), (-2, b"s")]
