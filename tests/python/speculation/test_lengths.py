"""Lengths, against a made-up machine: how close to the best, and never much worse than none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from pellucid.speculation.acceptance import Acceptance
from pellucid.speculation.lengths import Checked, Lengths, Wish
from pellucid.speculation.timing import StepTimes

Seconds = Callable[[int], float]


def by_memory(rows: int) -> float:
    """Weights are read once for all rows: a row more costs little."""
    return 1.0 + 0.06 * (rows - 1)


def by_arithmetic(rows: int) -> float:
    """Every row costs nearly the same."""
    return 0.4 + 0.6 * rows


def tokens_per_second(
    seconds: Seconds,
    chance: float,
    *,
    most: int = 8,
    each: float = 0.0,
    noise: float = 0.05,
    n_steps: int = 600,
    adaptive: bool = True,
) -> float:
    """What comes of one sequence whose guesses are right with `chance`."""
    rng = random.Random(7)
    lengths = Lengths(most, adaptive=adaptive)
    n_tokens = total = 0.0
    for _ in range(n_steps):
        chosen = lengths.choose({0: Wish(most)}, 1, each).get(0, 0)
        n_right = next((i for i in range(chosen) if rng.random() > chance), chosen)
        time = seconds(1 + chosen) * rng.uniform(1 - noise, 1 + noise)
        if rng.random() < 0.02:
            time *= 4  # held up by other work
        lengths.earned(0, 1 + n_right)
        if chosen:
            lengths.drafted(chosen * each)
            lengths.accepted([Checked(0, chosen, n_right)])
        lengths.took(1 + chosen, time, plain=not chosen)
        n_tokens += 1 + n_right
        total += seconds(1 + chosen) + chosen * each
    return n_tokens / total


def expected_tokens(chances: list[float]) -> float:
    """Tokens that a step gives with a draft of these chances: those accepted, and one more."""
    return sum(math.prod(chances[:place]) for place in range(len(chances) + 1))


def best_rate(seconds: Seconds, chance: float, most: int, each: float = 0.0) -> float:
    return max(expected_tokens([chance] * k) / (seconds(1 + k) + k * each) for k in range(most + 1))


@pytest.mark.parametrize("seconds", [by_memory, by_arithmetic])
@pytest.mark.parametrize("chance", [0.0, 0.2, 0.5, 0.7, 0.9, 0.98])
@pytest.mark.parametrize("each", [0.0, 0.3])
def test_near_the_best_and_never_much_below_plain(
    seconds: Seconds, chance: float, each: float
) -> None:
    rate = tokens_per_second(seconds, chance, each=each)
    assert rate * seconds(1) > 0.96
    assert rate > 0.93 * best_rate(seconds, chance, 8, each)


def test_the_check_has_teeth() -> None:
    """Always guessing loses where it does not pay."""
    assert tokens_per_second(by_arithmetic, 0.2, adaptive=False) < 0.5


def test_each_sequence_has_its_own_length() -> None:
    lengths = Lengths(8)
    for _ in range(60):
        lengths.choose({0: Wish(8), 1: Wish(8), 2: Wish(0)}, 3)
        lengths.accepted([Checked(0, 8, 8), Checked(1, 8, 0)])
        lengths.took(3, by_memory(3), plain=True)
        lengths.took(11, by_memory(11), plain=False)
    chosen = lengths.choose({0: Wish(8), 1: Wish(8), 2: Wish(0)}, 3)
    assert chosen.get(0) == 8
    assert 1 not in chosen and 2 not in chosen


def test_what_does_not_pay_is_tried_ever_more_rarely() -> None:
    lengths = Lengths(8)
    tried = []
    for step in range(1000):
        chosen = lengths.choose({0: Wish(8)}, 1).get(0, 0)
        if chosen:
            tried.append(step)
            lengths.accepted([Checked(0, chosen, 0)])
        lengths.earned(0, 1)
        lengths.took(1 + chosen, by_arithmetic(1 + chosen), plain=not chosen)
    assert 3 < len(tried) < 16
    late = [second - first for first, second in zip(tried[-4:], tried[-3:], strict=False)]
    assert late == sorted(late)


@pytest.mark.parametrize("crowd", [1, 8, 32])
def test_what_a_guess_cost_in_a_crowd_does_not_keep_short_answers_from_any(crowd: int) -> None:
    """In a crowd a guess costs more than an account begins with; alone it pays."""
    lengths = Lengths(6)

    def run(sequences: range, n_steps: int, right: bool) -> int:
        n_guessed = 0
        for _ in range(n_steps):
            lengths.begin(len(sequences), 0.3)
            wishes = {id: Wish(6) for id in sequences if lengths.may(id)}
            chosen = lengths.choose(wishes, len(sequences), 0.3)
            guesses = sum(chosen.values())
            for id in sequences:
                lengths.earned(id, 1 + (chosen.get(id, 0) if right else 0))
            lengths.accepted([Checked(id, k, k if right else 0) for id, k in chosen.items()])
            rows = len(sequences) + guesses
            lengths.took(rows, by_memory(rows), plain=not chosen)
            n_guessed += guesses
        for id in sequences:
            lengths.forget(id)
        return n_guessed

    run(range(crowd), 40, right=False)
    assert sum(run(range(id, id + 1), 40, right=True) for id in range(100, 110)) > 100


def test_what_pays_again_is_found_again() -> None:
    lengths = Lengths(8)
    drafted = 0
    for step in range(2000):
        chosen = lengths.choose({0: Wish(8)}, 1).get(0, 0)
        right = step >= 600
        if chosen:
            lengths.accepted([Checked(0, chosen, chosen if right else 0)])
        lengths.earned(0, 1 + (chosen if right else 0))
        lengths.took(1 + chosen, by_memory(1 + chosen), plain=not chosen)
        drafted += chosen if step > 1500 else 0
    assert drafted > 400 * 7


def test_a_machine_that_is_slow_for_a_while_does_not_end_guessing() -> None:
    """The drafter's times are of when it guessed last; steps were as slow then, and are not now."""
    lengths = Lengths(8)
    each, drafted = None, [0, 0]
    for sequence, pace in ((0, 3.0), (1, 1.0)):
        for _ in range(30):
            wish = Wish(8, seconds_before=3.0 if sequence and not drafted[1] else 0.0, left=60)
            chosen = lengths.choose({sequence: wish}, 1, each).get(sequence, 0)
            lengths.earned(sequence, 1 + chosen)
            if chosen:
                each = 0.35 * pace
                lengths.drafted(chosen * each)
                lengths.accepted([Checked(sequence, chosen, chosen)])
                drafted[sequence] += chosen
            lengths.took(1 + chosen, pace * by_memory(1 + chosen), plain=not chosen)
        if not sequence:  # meanwhile, without drafts, the machine has become what it is again
            for _ in range(20):
                lengths.took(1, by_memory(1), plain=True)
    assert min(drafted) > 60


def test_times_between_and_beyond_what_was_measured() -> None:
    times = StepTimes()
    assert times.of(3) == 0.0
    for _ in range(100):
        times.note(1, 1.0)
        times.note(5, 3.0)
    assert times.of(3) == pytest.approx(2.0, rel=0.05)
    assert times.of(9) > times.of(5)
    assert times.hoped(5) == pytest.approx(times.of(5), rel=0.01)  # it was measured often
    assert times.hoped(9) < times.of(9)
    for _ in range(30):  # everything takes twice as long: one measurement tells of all
        times.note(1, 2.0)
    assert times.of(5) == pytest.approx(6.0, rel=0.4)
    for _ in range(200):
        times.note(1, 2.0)
        times.note(5, 6.0)
    assert times.of(5) == pytest.approx(6.0, rel=0.05)


def test_acceptance_is_by_place_and_kind_and_own_before_common() -> None:
    acceptance = Acceptance()
    for _ in range(50):
        acceptance.note(0, 1, 4, 1)
        acceptance.note(0, 2, 4, 4)
    first, second, *_ = acceptance.chances(0, 1, 6)
    assert first > 0.95 and second < 0.05
    assert min(acceptance.chances(0, 2, 6)) > 0.9
    assert acceptance.chances(9, 1, 1)[0] > 0.9  # another's experience, while it has none
    for _ in range(20):
        acceptance.note(9, 1, 4, 0)
    assert acceptance.chances(9, 1, 1)[0] < 0.4
    acceptance.forget(9)
    assert acceptance.chances(9, 1, 1)[0] > 0.5
