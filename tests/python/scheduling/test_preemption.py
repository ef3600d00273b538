"""Who gives way to whom, and why the others wait."""

from __future__ import annotations

from pellucid.scheduling import Scheduler, Sequence, State
from tests.python.scheduling.helpers import limits, run, step


def preempted(scheduler: Scheduler, at_most: int = 100) -> dict[int, int]:
    """Steps until somebody is preempted: sequence id to positions to compute again."""
    for _ in range(at_most):
        step(scheduler)
        if scheduler.changes.preempted:
            return scheduler.changes.preempted
    return {}


def test_the_one_with_least_to_compute_again_gives_way() -> None:
    scheduler = Scheduler(limits(n_pages=12, max_num_batched_tokens=64))
    sequences = [Sequence(0, [1] * 16, 20), Sequence(1, [2] * 6, 20), Sequence(2, [3] * 9, 20)]
    for sequence in sequences:
        scheduler.add(sequence)
    [(victim, lost)] = preempted(scheduler).items()
    assert victim == 1
    assert lost == len(sequences[1].tokens) - 1
    assert (sequences[1].pages, sequences[1].computed) == ((), 0)
    assert run(scheduler, sequences)
    assert sequences[0].n_preemptions == 0


def test_what_others_keep_in_the_cache_is_not_counted_as_lost() -> None:
    scheduler = Scheduler(limits(n_pages=11, max_num_batched_tokens=64, prefix_caching=True))
    common = list(range(16))
    sequences = [Sequence(0, [*common, 1], 24), Sequence(1, [*common, 2, 2], 24)]
    sequences.append(Sequence(2, [3] * 6, 24))
    for sequence in sequences:
        scheduler.add(sequence)
    step(scheduler)
    step(scheduler)
    assert sequences[1].cached_tokens == 16
    [(victim, lost)] = preempted(scheduler).items()
    assert len(sequences[1].tokens) > len(sequences[2].tokens)
    assert victim == 1
    assert lost == len(sequences[1].tokens) - 1 - 16
    run(scheduler, sequences)


def test_a_better_priority_takes_the_place_of_a_worse() -> None:
    scheduler = Scheduler(limits(n_pages=64))
    batch = [Sequence(i, [1] * (3 + i), 20, priority=5) for i in range(4)]
    for sequence in batch:
        scheduler.add(sequence)
    step(scheduler)
    urgent = Sequence(9, [1] * 3, 5)
    scheduler.add(urgent)
    step(scheduler)
    assert scheduler.changes.preempted == {0: 3}  # the least to compute again
    assert len(urgent.tokens) == 4
    run(scheduler, [urgent, *batch])


def test_equals_do_not_take_places() -> None:
    scheduler = Scheduler(limits(n_pages=64))
    for i in range(5):
        scheduler.add(Sequence(i, [1] * 3, 20))
    assert not preempted(scheduler, 10)
    assert scheduler.waiting() == [(4, "all 4 places are taken")]


def test_each_that_waits_says_why() -> None:
    scheduler = Scheduler(limits(n_pages=8))
    running, big, behind = Sequence(0, [1] * 15, 9), Sequence(1, [1] * 24, 1), Sequence(2, [1], 1)
    for sequence in (running, big):
        scheduler.add(sequence)
    step(scheduler)
    scheduler.add(Sequence(3, [1] * 24, 1, sibling_of=big))
    scheduler.add(behind)
    why = "needs 6 pages and 1 kept for the answers that grow, 4 free"
    assert scheduler.waiting() == [
        (1, why),
        (2, f"1 before it, first 1: {why}"),
        (3, "waits for 1 to compute the prompt they share"),
    ]
    step(scheduler)
    assert behind.state is State.RUNNING  # it takes a page that would not have been enough


def test_one_that_was_preempted_says_so() -> None:
    scheduler = Scheduler(limits(n_pages=12, max_num_batched_tokens=64))
    for i in range(3):
        scheduler.add(Sequence(i, [1] * 10, 30))
    [victim] = preempted(scheduler)
    assert scheduler.waiting() == [
        (victim, "was preempted for want of pages: waits until a running sequence ends")
    ]
