"""How long pages live, lie idle and wait for their next use."""

from __future__ import annotations

import pytest

from pellucid import SamplingParams
from pellucid.core.record import PageChanges
from pellucid.costs import kv_bytes_per_token
from pellucid.engine.residency import Residency
from pellucid.engine.stats import RESIDENCY_SECONDS, Durations
from tests.python.engine.traffic import MakeLLM


def places(durations: Durations) -> dict[float, int]:
    """How many, by the bound that holds them."""
    bounds = (*RESIDENCY_SECONDS, float("inf"))
    return {bound: n for bound, n in zip(bounds, durations.counts, strict=True) if n}


def test_a_page_lives_from_its_taking_to_its_eviction() -> None:
    pages = Residency()
    pages.enter(PageChanges(taken=[1, 2, 3]), 100.0)
    pages.enter(PageChanges(cached=[1, 2], released=[1, 2, 3]), 101.0)
    pages.enter(PageChanges(taken=[3]), 102.0)  # it was in no cache: nobody can miss it
    pages.enter(PageChanges(shared=[1]), 104.0)
    pages.enter(PageChanges(shared=[1]), 119.0)
    pages.enter(PageChanges(evicted=[2], taken=[2]), 150.0)
    pages.enter(PageChanges(evicted=[1, 2]), 1000.0)
    lifetimes, idle, gaps = pages.told()
    assert places(lifetimes) == {60.0: 1, 1200.0: 2}
    assert lifetimes.seconds == 50 + 850 + 900
    assert places(idle) == {60.0: 1, 1200.0: 2}
    assert idle.seconds == 50 + 850 + 881
    assert places(gaps) == {20.0: 1}
    assert gaps.seconds == 15.0


def test_an_engine_counts_each_eviction_and_each_use_after_the_first(make_llm: MakeLLM) -> None:
    page = 16 * kv_bytes_per_token(make_llm().spec, "f32")
    llm = make_llm(kv_cache_memory_bytes=8 * page, max_model_len=96)
    params = SamplingParams(max_tokens=2, temperature=0)
    evicted, shared = 0, 0
    records = []
    llm.engine.subscribe(records.append)
    for turn in range(12):  # one prompt again and again, and others that drive it out at last
        llm.generate("the same " * 5 if turn < 4 else f"{turn} other " * 6, params)
    evicted = sum(len(record.changes.evicted) for record in records)
    shared = sum(len(record.changes.shared) for record in records)
    assert evicted > 4
    assert shared > 4
    stats = llm.engine.stats()
    assert sum(stats.page_lifetimes.counts) == sum(stats.page_idle.counts) == evicted
    n_pages = len({page for record in records for page in record.changes.shared})
    assert sum(stats.page_reuse_gaps.counts) == shared - n_pages
    assert stats.page_idle.seconds <= stats.page_lifetimes.seconds + 1e-9


@pytest.mark.parametrize("shared", [False, True])
def test_what_was_not_seen_taken_is_passed_over(shared: bool) -> None:
    pages = Residency()
    pages.enter(PageChanges(shared=[5] if shared else []), 1.0)
    pages.enter(PageChanges(evicted=[5]), 2.0)
    assert not any(places(durations) for durations in pages.told())
