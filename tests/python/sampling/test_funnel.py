"""The funnel shows the very choice that the sampler makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid import BadInput, SamplingParams
from pellucid.sampling import Draw, History, Sampler
from pellucid.sampling.funnel import funnel

VOCAB = 40

ways = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    frequency_penalty=st.sampled_from([0.0, 0.7]),
    min_tokens=st.sampled_from([0, 9]),
    logit_bias=st.sampled_from([{}, {3: -100.0}, {5: 4.0}]),
)


@given(ways, st.integers(0, 2**32 - 1), st.lists(st.integers(0, VOCAB - 1), max_size=8))
def test_what_it_draws_is_what_is_chosen(
    params: SamplingParams, seed: int, said: list[int]
) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, VOCAB).astype(np.float32)
    history = History([1, 2, 3])
    for token in said:
        history.append(token)
    is_token = np.ones(VOCAB, np.bool_)
    is_token[-4:] = False
    sampler = Sampler(is_token)
    draw = Draw(params, seed, 3 + len(said), history, (0,))
    found = funnel(sampler, logits, draw, 6)
    assert found.drawn == sampler.choose(logits, draw).token_id
    names = [stage.name for stage in found.stages]
    filters = [] if params.greedy else ["temperature", "min_p", "top_k", "top_p"]
    assert names == ["logits", "penalties", *filters, "draw"]
    left = [stage.left for stage in found.stages]
    assert left == sorted(left, reverse=True) and left[0] == VOCAB - 4
    for stage in found.stages:
        shares = [share for _, share in stage.top]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1 + 1e-9
        assert len(stage.top) == min(6, stage.left)
    top_k = dict(zip(names, left, strict=True)).get("top_k", 0)
    assert top_k <= params.top_k or params.top_k == 0


def test_a_choice_that_cannot_be_says_so() -> None:
    banned = SamplingParams(logit_bias=dict.fromkeys(range(VOCAB), -100.0))
    with pytest.raises(BadInput, match="no token is left"):
        funnel(Sampler(), np.zeros(VOCAB, np.float32), Draw(banned, 0, 0, History([])), 3)
