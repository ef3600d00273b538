"""What sequences have in common is computed once."""

from __future__ import annotations

from pellucid.scheduling import Scheduler, Sequence, State
from pellucid.scheduling.admission import Outcome
from pellucid.scheduling.queue import Lane
from tests.python.scheduling.helpers import apply, limits, outline, run, step


def caching(**changes: object) -> Scheduler:
    return Scheduler(limits(**{"prefix_caching": True, "n_pages": 64, **changes}))


def test_a_prompt_seen_before_is_computed_at_its_last_token_alone() -> None:
    scheduler = caching()
    first = Sequence(0, range(16), 1)
    scheduler.add(first)
    run(scheduler, [first])
    again = Sequence(1, range(16), 1)
    scheduler.add(again)
    plan = scheduler.plan()
    assert outline(plan) == [(1, 15, 16, 1)]
    [(source, destination)] = plan.copies  # its last page is full, and written to
    assert scheduler.changes.copied == [(source, destination)]
    assert scheduler.changes.shared[-1] == source
    assert plan.spans[0].pages[-1] == destination
    assert again.cached_tokens == 15
    assert (scheduler.prefix_queries, scheduler.prefix_hits) == (32, 15)


def test_where_pages_are_short_the_last_one_is_computed_and_not_copied() -> None:
    scheduler = caching(n_pages=4)
    for i in range(2):
        sequence = Sequence(i, range(16), 1)
        scheduler.add(sequence)
        plan = scheduler.plan()
        apply(scheduler, plan)
        scheduler.finish(sequence)
    assert outline(plan) == [(1, 12, 16, 1)]
    assert not plan.copies


def test_the_next_turn_of_a_conversation_finds_the_answer_in_the_cache() -> None:
    scheduler = caching()
    first = Sequence(0, range(10), 8)
    scheduler.add(first)
    run(scheduler, [first])
    second = Sequence(1, [*first.tokens, 3, 3, 3], 1)
    scheduler.add(second)
    assert step(scheduler) == [(1, 16, 21, 1)]  # 17 of 18 were computed: four full pages


def test_tenants_share_nothing() -> None:
    scheduler = caching()
    sequences = [Sequence(i, range(16), 1, salt=salt) for i, salt in enumerate((b"", b"a", b"b"))]
    for sequence in sequences:
        scheduler.add(sequence)
    run(scheduler, sequences)
    assert scheduler.prefix_hits == 0
    assert [sequence.cached_tokens for sequence in sequences] == [0, 0, 0]


def test_who_wants_all_logits_computes_all_positions() -> None:
    scheduler = caching()
    first, scored = Sequence(0, range(16), 1), Sequence(1, range(16), 1, all_logits=True)
    scheduler.add(first)
    run(scheduler, [first])
    scheduler.add(scored)
    assert step(scheduler) == [(1, 0, 16, 16)]
    scheduler.check()  # and its pages are again those that the cache has
    assert scheduler.page_counts().owned + scheduler.page_counts().cached == 4


def test_a_sibling_that_wants_all_logits_computes_all_positions() -> None:
    scheduler = caching()
    first = Sequence(0, range(10), 3)
    scheduler.add(first)
    scheduler.add(Sequence(1, range(10), 1, all_logits=True, sibling_of=first))
    step(scheduler)
    assert step(scheduler) == [(0, 10, 11, 1), (1, 0, 10, 10)]


def test_two_that_come_together_compute_their_prefix_once() -> None:
    scheduler = caching(max_model_len=500, max_num_batched_tokens=16)
    first, second = Sequence(0, range(100), 1), Sequence(1, [*range(90), 7], 1)
    scheduler.add(first)
    scheduler.add(second)
    assert [s for s, *_ in step(scheduler)] == [0]
    assert scheduler.waiting() == [(1, "waits for 0 to compute the prefix they share")]
    run(scheduler, [first, second])
    assert second.cached_tokens == 88  # 22 full pages, and not a token more was computed twice
    assert scheduler.prefix_hits == 88


def test_nobody_waits_for_one_that_left() -> None:
    scheduler = caching(max_model_len=500)
    first, second = Sequence(0, range(100), 1), Sequence(1, range(100), 1)
    scheduler.add(first)
    scheduler.add(second)
    plan = scheduler.plan()
    scheduler.finish(first)
    apply(scheduler, plan)
    assert step(scheduler) == [(1, 0, 16, 0)]


def test_nobody_waits_for_one_that_does_not_get_on() -> None:
    scheduler = caching(max_model_len=500, n_pages=300, max_num_seqs=8)
    shared = range(300, 400)
    scheduler.add(Sequence(0, range(300), 1))
    scheduler.add(Sequence(1, [*shared, 0], 1))
    assert step(scheduler) == [(0, 0, 8, 0), (1, 0, 8, 0)]
    scheduler.add(Sequence(2, [1] * 60, 1))  # shorter than 1, which has no part from now on
    follower = Sequence(3, [*list(shared)[:20], 1], 1)
    scheduler.add(follower)
    assert step(scheduler) == [(0, 8, 16, 0), (2, 0, 8, 0)]
    assert scheduler.waiting() == [(3, "waits for 1 to compute the prefix they share")]
    assert step(scheduler) == [(0, 16, 24, 0), (3, 8, 16, 0)]


def test_nobody_waits_for_one_that_crawls() -> None:
    scheduler = caching(max_model_len=500, n_pages=300, max_num_seqs=8)
    scheduler.add(Sequence(0, range(300), 1))
    scheduler.add(Sequence(1, range(300, 400), 1))
    step(scheduler)
    scheduler.add(Sequence(2, [1] * 7, 1))
    assert step(scheduler) == [(0, 8, 16, 0), (2, 0, 7, 1), (1, 8, 9, 0)]
    scheduler.add(Sequence(3, range(300, 316), 1))
    assert (3, 8, 15, 0) in step(scheduler)


def test_siblings_share_the_prompt_and_copy_its_last_page() -> None:
    for prefix_caching in (True, False):
        scheduler = caching(prefix_caching=prefix_caching)
        first = Sequence(0, range(10), 3)
        siblings = [Sequence(i, range(10), 3, sibling_of=first) for i in (1, 2)]
        for sequence in (first, *siblings):
            scheduler.add(sequence)
        assert step(scheduler) == [(0, 0, 10, 1)]
        assert scheduler.n_waiting == 2
        plan = scheduler.plan()
        assert outline(plan) == [(0, 10, 11, 1), (1, 9, 10, 1), (2, 9, 10, 1)]
        assert [source for source, _ in plan.copies] == [first.pages[2]] * 2
        assert {s.pages[:2] for s in (first, *siblings)} == {first.pages[:2]}
        assert len({s.pages[2] for s in (first, *siblings)}) == 3
        apply(scheduler, plan)
        run(scheduler, [first, *siblings])
        assert not scheduler.page_counts().owned


def test_siblings_start_although_the_first_was_cancelled() -> None:
    scheduler = caching()
    first = Sequence(0, range(10), 3)
    second = Sequence(1, range(10), 3, sibling_of=first)
    scheduler.add(first)
    scheduler.add(second)
    step(scheduler)
    scheduler.finish(first)
    run(scheduler, [second])
    assert second.state is State.FINISHED


def test_a_sibling_has_the_same_prompt() -> None:
    first = Sequence(0, [1, 2], 1)
    for changes in ({"salt": b"a"}, {"priority": 1}):
        try:
            Sequence(1, [1, 2], 1, sibling_of=first, **changes)  # type: ignore[arg-type]
        except ValueError as error:
            assert "no sibling of 0" in str(error)
        else:
            raise AssertionError("taken for a sibling")


def test_the_least_recently_used_chain_goes_first_and_from_its_end() -> None:
    scheduler = caching(n_pages=8)
    old, new = Sequence(0, [0] * 12, 1), Sequence(1, [1] * 12, 1)
    for sequence in (old, new):
        scheduler.add(sequence)
        run(scheduler, [sequence])
    assert scheduler.page_counts().cached == 6
    other = Sequence(2, [2] * 15, 1)  # four pages: two are free
    scheduler.add(other)
    run(scheduler, [other])
    for prompt, known in (([1] * 12, 11), ([0] * 12, 4)):
        again = Sequence(10 + known, prompt, 1)
        scheduler.add(again)
        step(scheduler)
        assert again.cached_tokens == known
        scheduler.finish(again)


def test_a_plan_looks_at_few_however_many_share_a_prefix() -> None:
    """Else one plan in the middle of everything takes a second."""
    scheduler = caching(max_model_len=100, max_num_batched_tokens=64, max_num_seqs=64, n_pages=900)
    shared = range(98)
    sequences = [Sequence(i, [*shared[: 40 + i % 58], 7], 1) for i in range(500)]
    for sequence in sequences:
        scheduler.add(sequence)
    looked = 0
    admit = scheduler._admission.admit

    def counting(sequence: Sequence, lane: Lane) -> Outcome:
        nonlocal looked
        looked += 1
        return admit(sequence, lane)

    scheduler._admission.admit = counting  # type: ignore[method-assign]
    while not scheduler.idle:
        before, n_running = looked, scheduler.n_running
        plan = scheduler.plan()
        assert plan.spans
        # A token or a page of the step for each, and one that is turned down by each lane in turn.
        assert looked - before <= 64 + 3
        assert n_running <= 64
        apply(scheduler, plan)
        for span in plan.spans:
            if span.n_logits:
                scheduler.finish(sequences[span.sequence])
    assert all(sequence.state is State.FINISHED for sequence in sequences)
