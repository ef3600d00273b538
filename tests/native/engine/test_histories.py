"""On the native backend, too, nothing of an engine's history shows in an answer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM
from tests.python.engine.histories import History, check, crowded, histories
from tests.python.engine.tiny import CONTEXT
from tests.python.engine.traffic import MakeLLM


@pytest.fixture(scope="module", params=["f16", "int8", "int4"])
def naive(make_llm: MakeLLM, request: pytest.FixtureRequest) -> LLM:
    return make_llm(
        backend="native",
        threads=1,
        kv_cache=False,
        max_num_seqs=1,
        page_size=CONTEXT,
        kv_cache_dtype=request.param,
    )


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((16, 32)), st.integers(1, 2))
def test_nothing_of_a_history_shows(
    make_llm: MakeLLM, naive: LLM, history: History, threads: int
) -> None:
    ops = {"threads": threads, "kv_cache_dtype": naive.engine.model.ops.kv_dtype}
    check(make_llm, naive, history, backend="native", **ops)


def test_a_crowded_history_preempts_and_shares(make_llm: MakeLLM, naive: LLM) -> None:
    llm = check(
        make_llm,
        naive,
        crowded(16),
        backend="native",
        kv_cache_dtype=naive.engine.model.ops.kv_dtype,
    )
    stats = llm.engine.stats()
    assert stats.preemptions
    assert stats.prefix_hits
