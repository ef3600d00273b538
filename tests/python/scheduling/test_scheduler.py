"""The scheduler, driven without any model."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, PromptTooLong
from pellucid.core.plan import Plan
from pellucid.scheduling import Limits, Scheduler, Sequence, State
from tests.python.scheduling.helpers import apply, limits, outline


def test_a_prompt_goes_in_chunks_and_then_decodes() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(Sequence(0, range(20), 3))
    seen = []
    for _ in range(4):
        plan = scheduler.plan()
        seen += outline(plan)
        apply(scheduler, plan)
    assert seen == [(0, 0, 16, 0), (0, 16, 20, 1), (0, 20, 21, 1), (0, 21, 22, 1)]


def test_decode_goes_first_and_the_oldest_and_the_shortest_prompt_share_what_is_left() -> None:
    scheduler = Scheduler(limits(n_pages=32))
    scheduler.add(Sequence(0, range(2), 20))
    apply(scheduler, scheduler.plan())
    scheduler.add(Sequence(1, range(30), 4))
    scheduler.add(Sequence(2, range(5), 4))
    plan = scheduler.plan()
    assert outline(plan) == [(0, 2, 3, 1), (2, 0, 5, 1), (1, 0, 10, 0)]
    apply(scheduler, plan)
    plan = scheduler.plan()
    assert outline(plan) == [(0, 3, 4, 1), (2, 5, 6, 1), (1, 10, 24, 0)]


def test_a_plan_not_applied_is_made_again() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(Sequence(0, range(9), 3))
    assert scheduler.plan() == scheduler.plan()


def test_few_pass_one_that_waits_for_pages() -> None:
    """Shorter ones may take as many pages as the oldest needs itself, one after the other."""
    scheduler = Scheduler(limits())
    first, long = Sequence(0, [1] * 40, 20), Sequence(1, [1] * 28, 9)  # 10 and 7 of 16 pages
    scheduler.add(first)
    apply(scheduler, scheduler.plan())
    scheduler.add(long)
    short = [Sequence(i, [1], 1) for i in range(2, 20)]
    for sequence in short:
        scheduler.add(sequence)
    for _ in range(12):
        apply(scheduler, scheduler.plan())
        for sequence in short:
            if len(sequence.tokens) > 1:
                scheduler.finish(sequence)
    assert long.state is State.WAITING
    assert sum(s.state is State.FINISHED for s in short) == 7
    why = "needs 7 pages and 2 kept for the answers that grow, 3 free"
    assert scheduler.waiting()[0] == (1, why)
    scheduler.finish(first)
    apply(scheduler, scheduler.plan())
    assert long.state is State.RUNNING


def test_what_can_never_run_is_refused_with_the_numbers() -> None:
    scheduler = Scheduler(limits(n_pages=8))
    with pytest.raises(PromptTooLong, match=r"64 tokens.*context holds 64"):
        scheduler.add(Sequence(0, [1] * 64, 1))
    with pytest.raises(BadInput, match=r"60 tokens and 5 of the answer.*64"):
        scheduler.add(Sequence(0, [1] * 60, 5))
    with pytest.raises(BadInput, match=r"40 positions need 10 pages of 4.*has 8"):
        scheduler.add(Sequence(0, [1] * 40, 1))
    assert scheduler.idle


def test_a_prompt_may_fill_the_context_when_no_answer_is_wanted() -> None:
    scheduler = Scheduler(limits())
    sequence = Sequence(0, range(64), 0, all_logits=True)
    scheduler.add(sequence)
    wanted = 0
    while sequence.computed < 64:
        plan = scheduler.plan()
        wanted += plan.n_logits
        scheduler.apply(plan, {})
    assert wanted == 64
    scheduler.finish(sequence)
    assert scheduler.page_counts().free == 16


def test_without_a_cache_each_step_starts_from_nothing() -> None:
    scheduler = Scheduler(limits(kv_cache=False, max_num_batched_tokens=8))
    scheduler.add(Sequence(0, range(10), 3))
    scheduler.add(Sequence(1, range(3), 3))
    plan = scheduler.plan()
    assert outline(plan) == [(0, 0, 10, 1)]  # above the budget, but whole
    apply(scheduler, plan)
    assert outline(scheduler.plan()) == [(0, 0, 11, 1)]


def test_without_a_cache_short_ones_share_a_step() -> None:
    scheduler = Scheduler(limits(kv_cache=False))
    scheduler.add(Sequence(0, range(5), 3))
    scheduler.add(Sequence(1, range(6), 3))
    apply(scheduler, scheduler.plan())
    assert outline(scheduler.plan()) == [(0, 0, 6, 1), (1, 0, 7, 1)]


def test_finishing_between_plan_and_apply_is_harmless() -> None:
    scheduler = Scheduler(limits())
    gone, stays = Sequence(0, range(3), 5), Sequence(1, range(3), 5)
    scheduler.add(gone)
    scheduler.add(stays)
    plan = scheduler.plan()
    scheduler.finish(gone)
    scheduler.finish(gone)
    apply(scheduler, plan)
    assert (gone.computed, stays.computed) == (0, 3)
    scheduler.finish(stays)
    assert scheduler.page_counts().free == 16


@pytest.mark.parametrize(
    ("name", "value"), [("page_size", 0), ("n_pages", -1), ("max_num_seqs", True)]
)
def test_limits_out_of_range_are_named(name: str, value: object) -> None:
    with pytest.raises(BadInput, match=name):
        limits(**{name: value})


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadInput, match="max_num_batched_tokens 3 is below max_num_seqs 4"):
        limits(max_num_batched_tokens=3)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 6),
    st.integers(0, 30),
    st.integers(1, 7),
    st.integers(12, 40),
    st.booleans(),
)
def test_any_traffic_runs_to_its_end(
    seed: int, n_seqs: int, spare: int, page_size: int, n_pages: int, kv_cache: bool
) -> None:
    """Every sequence ends, and every page comes back."""
    rng = random.Random(seed)
    given_limits = limits(
        max_num_seqs=n_seqs,
        max_num_batched_tokens=n_seqs + spare,
        page_size=page_size,
        n_pages=n_pages,
        kv_cache=kv_cache,
    )
    scheduler = Scheduler(given_limits)
    to_come = [Sequence(i, [1] * rng.randint(1, 20), rng.randint(1, 12)) for i in range(12)]
    to_come = [s for s in to_come if -(-s.max_positions // page_size) <= n_pages]
    unfinished = list(to_come)
    for _ in range(3000):
        if not unfinished:
            break
        if to_come and (scheduler.idle or rng.random() < 0.3):
            scheduler.add(to_come.pop(0))
        plan = scheduler.plan()
        check_plan(plan, given_limits, {s.id: s for s in unfinished})
        apply(scheduler, plan)
        scheduler.check()
        for sequence in list(unfinished):
            given_up = sequence not in to_come and rng.random() < 0.02
            if given_up or len(sequence.tokens) == sequence.n_prompt + sequence.max_tokens:
                scheduler.finish(sequence)
                unfinished.remove(sequence)
    assert not unfinished
    assert scheduler.idle
    assert scheduler.page_counts().free == n_pages


def check_plan(plan: Plan, given_limits: Limits, sequences: dict[int, Sequence]) -> None:
    """What every plan must hold."""
    spans = plan.spans
    assert len({span.sequence for span in spans}) == len(spans) <= given_limits.max_num_seqs
    if given_limits.kv_cache or len(spans) > 1:
        assert plan.n_tokens <= given_limits.max_num_batched_tokens
    used: list[int] = []
    for span in spans:
        sequence = sequences[span.sequence]
        assert list(span.tokens) == sequence.tokens[span.start : span.end]
        assert span.start == sequence.computed
        assert len(span.pages) * plan.page_size >= span.end
        assert span.n_logits == (span.end == len(sequence.tokens))
        used += span.pages
        if not given_limits.kv_cache:
            assert (span.start, span.end) == (0, len(sequence.tokens))
    assert len(set(used)) == len(used), "two sequences write to one page"
    decoding = [s for s in sequences.values() if s.state is State.RUNNING and s.pending == 1]
    if given_limits.kv_cache:
        assert {s.id for s in decoding} <= {span.sequence for span in spans}, "decode was put off"
