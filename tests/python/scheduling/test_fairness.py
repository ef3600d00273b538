"""What the docstring of `Continuous` promises, whatever the traffic."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.scheduling import Scheduler, Sequence, State
from tests.python.scheduling.helpers import limits, run, step

LONG = 1000


def roomy(batched: int, **changes: object) -> Scheduler:
    """As many places and pages as anybody wants."""
    return Scheduler(
        limits(
            **{
                "max_model_len": 5000,
                "max_num_seqs": 64,
                "max_num_batched_tokens": batched,
                "n_pages": 20_000,
                **changes,
            }
        )
    )


def test_a_short_prompt_beside_a_long_one_answers_in_the_next_step() -> None:
    """A step that runs when it comes, and one more: two chunks' time."""
    scheduler = roomy(512)
    scheduler.add(Sequence(0, range(4000), 10))
    step(scheduler)
    scheduler.plan()  # runs
    short = Sequence(1, range(200), 10)
    scheduler.add(short)
    step(scheduler)
    assert len(short.tokens) == 201


@settings(max_examples=60, deadline=None)
@given(
    st.integers(64, 100),
    st.lists(st.integers(100, LONG), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, 99), st.integers(0, 12)), min_size=1, max_size=8),
    st.integers(0, 30),
)
def test_long_prompts_do_not_count_for_a_short_one(
    batched: int, long: list[int], short: list[tuple[int, int]], n_decoding: int
) -> None:
    """`short` are (length, step at which it comes)."""
    scheduler = roomy(batched)
    decoding = [Sequence(1000 + i, [1], LONG) for i in range(n_decoding)]
    for sequence in decoding:
        scheduler.add(sequence)
    step(scheduler)
    for i, length in enumerate(long):
        scheduler.add(Sequence(i, [1] * length, 1))
    running: dict[int, tuple[Sequence, int, int]] = {}  # sequence, when it came, by when
    for now in range(200):
        for i, (length, arrival) in enumerate(short):
            if arrival == now:
                sequence = Sequence(100 + i, [1] * length, LONG)
                scheduler.add(sequence)
                # Those that come to answer take one token of each step from then on.
                half = (batched - n_decoding - len(short)) // 2
                work = sum(other for other, _ in short if other <= length)
                running[i] = sequence, now, -(-work // half)
        step(scheduler)
        for i, (sequence, came, plans) in list(running.items()):
            if len(sequence.tokens) > sequence.n_prompt:
                del running[i]
            else:
                assert now - came + 1 < plans, f"{sequence.n_prompt} tokens wait too long"
        for sequence in [x for x in scheduler._running.all.values() if x.id < 100]:
            if len(sequence.tokens) > sequence.n_prompt:
                scheduler.finish(sequence)
    assert not running


@settings(max_examples=40, deadline=None)
@given(st.integers(8, 40), st.integers(50, 500), st.integers(1, 8), st.integers(1, 6))
def test_short_prompts_hold_a_long_one_up_by_half_at_most(
    batched: int, length: int, per_step: int, size: int
) -> None:
    scheduler = roomy(batched, max_num_seqs=8)
    first, long = Sequence(0, [1] * length, 1), Sequence(1, [1] * length, 1)
    scheduler.add(first)
    scheduler.add(long)
    # Each short one ends with its first token, and there are always some that wait. One of them
    # may be left with a single token, which goes before the budget as in decode.
    half = batched // 2
    ids = iter(range(2, 100_000))
    alive: list[Sequence] = []
    for _ in range(-(-2 * length // half)):
        while len(alive) < per_step + 8:
            alive.append(Sequence(next(ids), [1] * size, 1))
            scheduler.add(alive[-1])
        step(scheduler)
        for sequence in [x for x in (first, *alive) if len(x.tokens) > x.n_prompt]:
            scheduler.finish(sequence)
        alive = [x for x in alive if x.state is not State.FINISHED]
    assert len(long.tokens) > length


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(2, 6))
def test_a_free_place_goes_to_the_oldest_every_other_time(
    n_seqs: int, size: int, answer: int, spare: int
) -> None:
    """Short ones keep coming, long ones still start one after the other."""
    scheduler = roomy(n_seqs + spare, max_num_seqs=n_seqs)
    long = [Sequence(i, [1] * 40, 3) for i in range(4)]
    for sequence in long:
        scheduler.add(sequence)
    ids = iter(range(4, 100_000))
    short: list[Sequence] = []
    passed = 0
    for _ in range(1000):
        while len(short) < 10:
            short.append(Sequence(next(ids), [1] * size, answer))
            scheduler.add(short[-1])
        waited = [x for x in long if x.state is State.WAITING]
        n_waited = {x.id for x in short if x.state is State.WAITING}
        older = [x for x in scheduler._running.prefilling.values() if x.rank < long[-1].rank]
        step(scheduler)
        if waited and waited[0].state is State.WAITING and not older:
            passed += len(n_waited & scheduler._running.all.keys())
        else:
            passed = 0
        assert passed <= 1
        for sequence in (*long, *short):
            if len(sequence.tokens) == sequence.n_prompt + sequence.max_tokens:
                scheduler.finish(sequence)
        short = [x for x in short if x.state is not State.FINISHED]
        if all(x.state is State.FINISHED for x in long):
            return
    raise AssertionError("a long one starved")


def test_with_one_token_to_share_nobody_starves() -> None:
    scheduler = roomy(2, max_num_seqs=2)
    long = Sequence(0, [1] * 20, 2)
    scheduler.add(Sequence(1, [1], 500))
    step(scheduler)
    scheduler.add(long)
    for i in range(2, 100):
        scheduler.add(Sequence(i, [1], 1))
    for _ in range(22):
        step(scheduler)
    assert len(long.tokens) > 20


def test_static_batches_waste_steps_on_mixed_answers() -> None:
    """The same requests under both policies: a batch waits for its longest answer."""
    steps = {}
    for policy in ("continuous", "static"):
        scheduler = roomy(64, max_num_seqs=8, policy=policy)
        sequences = [Sequence(i, [1] * 4, 64 if i % 8 == 0 else 4) for i in range(64)]
        for sequence in sequences:
            scheduler.add(sequence)
        steps[policy] = run(scheduler, sequences)
    assert steps["static"] == 8 * 64
    assert steps["continuous"] < 0.3 * steps["static"]
