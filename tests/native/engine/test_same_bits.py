"""On the native backend too, the answer does not depend on the traffic."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, BadInput
from tests.python.engine.tiny import CONTEXT
from tests.python.engine.traffic import MakeLLM, Traffic, check_same_bits, traffic


@pytest.fixture(scope="module", params=["f16", "int8", "int4/int8"])
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
@given(traffic(), st.sampled_from([16, 32, 48]), st.integers(1, 3))
def test_cache_pages_chunks_neighbours_and_threads_change_no_bit(
    make_llm: MakeLLM, naive: LLM, given_traffic: Traffic, page_size: int, threads: int
) -> None:
    ops = {"threads": threads, "kv_cache_dtype": naive.engine.model.ops.kv_dtype}
    check_same_bits(make_llm, naive, given_traffic, page_size, backend="native", **ops)


def test_sizes_it_cannot_lay_out_are_refused(make_llm: MakeLLM) -> None:
    with pytest.raises(BadInput, match="page_size 5"):
        make_llm(backend="native", page_size=5)
    with pytest.raises(BadInput, match="'int3'"):
        make_llm(backend="native", kv_cache_dtype="int3")
