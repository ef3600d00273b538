"""The answer does not depend on the traffic: bits of logits, and tokens, under any arrangement.

The yardstick is the naive loop: no cache, one request at a time, every step from position 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from tests.python.engine.recorder import run
from tests.python.engine.tiny import CONTEXT, N_TOKENS
from tests.python.engine.traffic import MakeLLM, Traffic, check_same_bits, tokens, traffic


@pytest.fixture(scope="module")
def naive(make_llm: MakeLLM) -> LLM:
    return make_llm(kv_cache=False, max_num_seqs=1, page_size=CONTEXT)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(traffic(), st.integers(1, 33))
def test_cache_pages_chunks_and_neighbours_change_no_bit(
    make_llm: MakeLLM, naive: LLM, given_traffic: Traffic, page_size: int
) -> None:
    check_same_bits(make_llm, naive, given_traffic, page_size)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(tokens, min_size=1, max_size=CONTEXT), st.integers(1, 40), st.integers(1, 100))
def test_logits_do_not_depend_on_chunks_or_pages(
    make_llm: MakeLLM, llm: LLM, prompt: list[int], page_size: int, batched: int
) -> None:
    other = make_llm(page_size=page_size, max_num_seqs=1, max_num_batched_tokens=batched)
    expected = llm.logits(prompt)
    assert expected.shape == (len(prompt), llm.spec.vocab_size)
    assert other.logits(prompt).tobytes() == expected.tobytes()


def test_logits_are_what_tokens_are_chosen_from(llm: LLM) -> None:
    prompt = [3, 1, 4, 1, 5]
    [[answer]], rows = run(llm, [(prompt, SamplingParams(temperature=0, max_tokens=6, seed=0))])
    whole = llm.logits(prompt + answer)
    for i in range(6):
        position = len(prompt) + i
        assert rows[0, position] == whole[position - 1].tobytes()
        assert answer[i] == int(np.argmax(whole[position - 1][:N_TOKENS]))


def test_the_check_has_teeth(make_llm: MakeLLM, naive: LLM) -> None:
    """A key stored one position off is noticed."""
    llm = make_llm(page_size=4)
    engine = llm._engine
    assert engine is not None
    request = [([5, 6, 7, 8, 9], SamplingParams(temperature=0, max_tokens=6, seed=0))]
    forward = engine._passes.logits
    calls = 0

    def faulty(plan: Any) -> Any:
        nonlocal calls
        calls += 1
        logits = forward(plan)
        if calls == 1:
            for layer in engine._passes.cache.layers:  # type: ignore[attr-defined]
                for kept in layer.keys.arrays:
                    kept[:] = np.roll(kept, 1, axis=1)
        return logits

    engine._passes.logits = faulty  # type: ignore[method-assign]
    assert run(llm, request)[1] != run(naive, request)[1]
