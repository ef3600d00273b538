"""The answer does not depend on the traffic: bits of logits, and tokens, under any arrangement.

The yardstick is the naive loop: no cache, one request at a time, every step from position 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from tests.python.engine.recorder import Rows, run
from tests.python.engine.tiny import CONTEXT, N_TOKENS

MakeLLM = Callable[..., LLM]


@pytest.fixture(scope="module")
def naive(make_llm: MakeLLM) -> LLM:
    return make_llm(kv_cache=False, max_num_seqs=1, page_size=CONTEXT)


tokens = st.integers(0, N_TOKENS - 1)
prompts = st.lists(tokens, min_size=1, max_size=40)
ways = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.8, 1.5]),
        "top_p": st.sampled_from([0.9, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.2]),
        "n": st.sampled_from([1, 1, 3]),
        "max_tokens": st.integers(1, 10),
    }
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(prompts, ways), min_size=1, max_size=5),
    st.integers(1, 33),
    st.integers(1, 6),
    st.integers(0, 60),
    st.integers(0, 12),
)
def test_cache_pages_chunks_and_neighbours_change_no_bit(
    make_llm: MakeLLM,
    naive: LLM,
    asked: list[tuple[list[int], dict[str, Any]]],
    page_size: int,
    max_num_seqs: int,
    spare: int,
    spare_pages: int,
) -> None:
    requests = [
        (prompt, SamplingParams(**way, seed=seed)) for seed, (prompt, way) in enumerate(asked)
    ]
    alone: list[Any] = []
    expected: Rows = {}
    for request in requests:
        answers, rows = run(naive, [request])
        alone += answers
        expected |= rows
    page_bytes = page_size * 2 * 2 * 2 * 8 * 4
    fewest = -(-CONTEXT // page_size)
    llm = make_llm(
        page_size=page_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + spare,
        kv_cache_memory_bytes=(fewest + spare_pages) * page_bytes,
    )
    together, rows = run(llm, requests)
    assert together == alone
    assert rows.keys() == expected.keys()
    for key, row in rows.items():
        assert row == expected[key], f"logits differ at (seed, position) {key}"
    engine = llm._engine
    assert engine is not None
    pool = engine.scheduler.pool
    assert pool.n_unreserved == pool.n_pages


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
    forward = engine._forward
    calls = 0

    def faulty(plan: Any) -> Any:
        nonlocal calls
        calls += 1
        logits = forward(plan)
        if calls == 1:
            for layer in engine._cache.layers:  # type: ignore[attr-defined]
                layer.keys[:] = np.roll(layer.keys, 1, axis=1)
        return logits

    engine._forward = faulty  # type: ignore[method-assign]
    assert run(llm, request)[1] != run(naive, request)[1]
