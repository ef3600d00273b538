"""On the native backend too, speculation never shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from tests.python.engine.guesses import check_plain, requests, rounds_of, with_oracle
from tests.python.engine.histories import History, check, crowded, histories
from tests.python.engine.tiny import CONTEXT
from tests.python.engine.traffic import MakeLLM

NGRAM = {"method": "ngram", "tokens": 6, "adaptive": False}


@pytest.fixture(scope="module")
def naive(make_llm: MakeLLM) -> LLM:
    return make_llm(backend="native", threads=1, kv_cache=False, max_num_seqs=1, page_size=CONTEXT)


@pytest.fixture(scope="module")
def plain(make_llm: MakeLLM) -> LLM:
    return make_llm(backend="native", threads=1)


@pytest.fixture(scope="module")
def looking_up(make_llm: MakeLLM) -> LLM:
    return make_llm(backend="native", threads=2, speculative=NGRAM)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((16, 32)), st.integers(1, 9), st.integers(2, 6))
def test_nothing_of_a_history_with_drafts_shows(
    make_llm: MakeLLM, naive: LLM, history: History, most: int, wrong_at: int
) -> None:
    make = with_oracle(make_llm, naive, history, most, wrong_at)
    check(make, naive, history, backend="native", threads=2)


def test_a_crowded_history_drafts_preempts_and_shares(make_llm: MakeLLM, naive: LLM) -> None:
    history = crowded(16)
    make = with_oracle(make_llm, naive, history, 5, 4)
    llm = check(make, naive, history, backend="native")
    assert llm.engine.stats().preemptions
    assert sum(one.n_accepted for one in rounds_of(llm)) > 20


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((16, 32), forms=False), st.integers(1, 7), st.booleans())
def test_models_that_guess_change_no_answer(
    make_llm: MakeLLM, naive: LLM, tiny_path: Path, history: History, tokens: int, early: bool
) -> None:
    """The first layers of the model; or the model itself, whose guesses must then all be right."""
    speculative = {"method": "draft", "model": tiny_path, "tokens": tokens, "adaptive": False}
    if early:
        speculative = {"method": "early-exit", "layers": 1, "tokens": tokens, "adaptive": False}
    llm = check(
        make_llm,
        naive,
        history,
        caches=1 if early else 2,
        backend="native",
        threads=2,
        speculative=speculative,
    )
    assert early or all(one.n_accepted == len(one.draft) for one in rounds_of(llm))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests())
def test_looking_up_changes_no_answer(
    looking_up: LLM, plain: LLM, asked: list[tuple[list[int], SamplingParams]]
) -> None:
    check_plain(looking_up, plain, asked)
