"""Whatever the engine went through, each answer is what it would be alone, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from pellucid import LLM
from tests.python.engine.histories import History, check, crowded, histories
from tests.python.engine.tiny import CONTEXT
from tests.python.engine.traffic import MakeLLM


@pytest.fixture(scope="module")
def naive(make_llm: MakeLLM) -> LLM:
    return make_llm(kv_cache=False, max_num_seqs=1, page_size=CONTEXT)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((1, 3, 5, 16)))
def test_nothing_of_a_history_shows(make_llm: MakeLLM, naive: LLM, history: History) -> None:
    check(make_llm, naive, history)


@pytest.mark.parametrize("page_size", [5, 16])
def test_a_crowded_history_preempts_and_shares(
    make_llm: MakeLLM, naive: LLM, page_size: int
) -> None:
    stats = check(make_llm, naive, crowded(page_size)).engine.stats()
    assert stats.preemptions
    assert stats.prefix_hits


def _no_copies(llm: LLM, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(llm.engine.model.ops, "copy_pages", lambda cache, pairs: None)


def _forgets_to_recompute(llm: LLM, patch: pytest.MonkeyPatch) -> None:
    memory = llm.engine.scheduler._memory
    release = memory.release

    def faulty(sequence: Any) -> None:
        computed = sequence.computed
        release(sequence)
        sequence.tokens[: computed // 2] = [0] * (computed // 2)

    patch.setattr(memory, "release", faulty)


@pytest.mark.parametrize("fault", [_no_copies, _forgets_to_recompute])
def test_the_check_has_teeth(
    make_llm: MakeLLM, naive: LLM, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    def make_faulty(**arguments: Any) -> LLM:
        llm = make_llm(**arguments)
        fault(llm, monkeypatch)
        return llm

    with pytest.raises(AssertionError):
        check(make_faulty, naive, crowded(5))
