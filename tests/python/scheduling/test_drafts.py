"""Room for drafts: what a plan gives, and what happens to it."""

from __future__ import annotations

from pellucid.scheduling import Scheduler, Sequence
from tests.python.scheduling.helpers import apply, limits, outline, step


def decoding(scheduler: Scheduler, *sequences: Sequence) -> None:
    for sequence in sequences:
        scheduler.add(sequence)
        apply(scheduler, scheduler.plan())


def test_what_is_accepted_moves_on_and_the_rest_of_the_pages_goes_back() -> None:
    scheduler = Scheduler(limits())
    sequence = Sequence(0, range(7), 20)
    decoding(scheduler, sequence)
    free = scheduler.page_counts().free
    plan = scheduler.plan({0: 9})
    assert plan.room == {0: 9}
    assert scheduler.page_counts().free == free - 3  # positions 8 to 16, four to a page
    drafted = plan.with_drafts({0: (1, 2, 3, 4, 5)})
    assert outline(drafted) == [(0, 7, 13, 6)]
    assert drafted.spans[0].tokens == (7, 1, 2, 3, 4, 5)
    scheduler.apply(drafted, {0: (1, 2, 9)})
    scheduler.check()
    assert sequence.tokens[7:] == [7, 1, 2, 9]
    assert sequence.computed == 10
    assert len(sequence.pages) == 3
    assert outline(scheduler.plan()) == [(0, 10, 11, 1)]


def test_room_is_asked_for_anew_each_time() -> None:
    scheduler = Scheduler(limits())
    sequence = Sequence(0, range(7), 20)
    decoding(scheduler, sequence)
    assert scheduler.plan({0: 3}).room == {0: 3}
    plan = scheduler.plan()  # the first was never applied: its pages are given back
    scheduler.check()
    assert not plan.room
    assert len(sequence.pages) == 2


def test_no_more_than_the_answer_may_have_nor_the_step() -> None:
    scheduler = Scheduler(limits(max_num_batched_tokens=6))
    few, many = Sequence(0, [1], 4), Sequence(1, [1], 40)
    decoding(scheduler, few, many)
    # `few` has two of its four tokens: a draft of one, and the token that the check gives.
    assert scheduler.plan({0: 9, 1: 9}).room == {0: 1, 1: 3}


def test_prompts_go_first() -> None:
    scheduler = Scheduler(limits())
    sequence = Sequence(0, range(3), 20)
    decoding(scheduler, sequence)
    scheduler.add(Sequence(1, range(13), 2))
    plan = scheduler.plan({0: 9})
    assert outline(plan) == [(0, 3, 4, 1), (1, 0, 13, 1)]
    assert plan.room == {0: 2}


def test_a_draft_preempts_nobody_and_evicts_one_page_at_most() -> None:
    scheduler = Scheduler(limits(n_pages=8, prefix_caching=True))
    old = Sequence(0, range(50, 66), 1)
    decoding(scheduler, old)
    scheduler.finish(old)  # four pages are kept for their content
    first, second = Sequence(1, range(5), 20), Sequence(2, range(20, 25), 20)
    decoding(scheduler, first, second)
    assert (scheduler.page_counts().free, scheduler.page_counts().cached) == (0, 4)
    plan = scheduler.plan({1: 12, 2: 12})
    # First has pages for two positions more, and takes one page of those kept; so has second.
    assert len(scheduler.changes.evicted) == 2
    assert not scheduler.changes.preempted
    assert plan.room.keys() == {1, 2}
    step(scheduler)
    scheduler.check()
    # What was evicted is free now: the next drafts evict nothing as far as that goes.
    scheduler.plan({1: 4})
    assert not scheduler.changes.evicted


def test_without_a_cache_there_is_no_room() -> None:
    scheduler = Scheduler(limits(kv_cache=False))
    sequence = Sequence(0, range(3), 20)
    decoding(scheduler, sequence)
    assert not scheduler.plan({0: 4}).room
