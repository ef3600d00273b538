"""Random traffic, and the check that nothing in an answer depends on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from pellucid.costs import kv_bytes_per_token
from tests.python.engine.recorder import Asked, Rows, run
from tests.python.engine.tiny import CONTEXT, N_TOKENS

MakeLLM = Callable[..., LLM]

tokens = st.integers(0, N_TOKENS - 1)
_ways = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.8, 1.5]),
        "top_p": st.sampled_from([0.9, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.2]),
        "n": st.sampled_from([1, 1, 3]),
        "max_tokens": st.integers(1, 10),
    }
)


@dataclass(frozen=True)
class Traffic:
    """Requests that come together, and the limits they meet."""

    requests: list[Asked]
    max_num_seqs: int
    spare_tokens: int  # of a step, beyond one for each sequence
    spare_pages: int  # of the pool, beyond those of one whole context


@st.composite
def traffic(draw: st.DrawFn) -> Traffic:
    prompt = st.lists(tokens, min_size=1, max_size=40)
    asked = draw(st.lists(st.tuples(prompt, _ways), min_size=1, max_size=5))
    requests = [(ids, SamplingParams(**way, seed=seed)) for seed, (ids, way) in enumerate(asked)]
    counts = st.integers(1, 6), st.integers(0, 60), st.integers(0, 12)
    return Traffic(requests, *map(draw, counts))


def check_same_bits(
    make_llm: MakeLLM, naive: LLM, given: Traffic, page_size: int, **arguments: Any
) -> None:
    """Run the requests together and each alone on `naive`: tokens and bits must be equal, and
    every page must come back."""
    alone: list[Any] = []
    expected: Rows = {}
    for request in given.requests:
        answers, rows = run(naive, [request])
        alone += answers
        expected |= rows
    assert naive._engine is not None
    ops = naive._engine.model.ops
    page_bytes = page_size * kv_bytes_per_token(naive.spec, ops.kv_dtype, ops.kv_lanes)
    n_pages = -(-CONTEXT // page_size) + given.spare_pages
    llm = make_llm(
        page_size=page_size,
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=given.max_num_seqs + given.spare_tokens,
        kv_cache_memory_bytes=n_pages * page_bytes,
        **arguments,
    )
    together, rows = run(llm, given.requests)
    assert together == alone
    assert rows.keys() == expected.keys()
    for key, row in rows.items():
        assert row == expected[key], f"logits differ at (seed, position) {key}"
    engine = llm._engine
    assert engine is not None
    assert not engine.scheduler.page_counts().owned
