"""The bound on what guessing may cost, on a made-up machine, whatever becomes of the guesses."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.speculation.accounts import ALLOWANCE, SHARE, Accounts
from pellucid.speculation.aftermath import Aftermath
from pellucid.speculation.lengths import Checked, Lengths, Wish

# Token times that first steps of some number of rows may cost more than was expected of them, and
# what times of steps are wrongly believed to be, as a share of an answer.
_SURPRISE = 2.5
_BELIEF = 0.02

Right = Callable[[int, int], int]
"""How many of a draft's guesses are right: by its step and its length."""


def loss(
    seconds: Callable[[int], float],
    right: Right,
    n_steps: int,
    *,
    each: float = 0.0,
    noise: float = 0.0,
    after: float = 0.0,
    lengths: Lengths | None = None,
    sequence: int = 0,
) -> tuple[float, int]:
    """Plain steps' times that an answer took more than without drafts; and its tokens. `after` a
    draft the first plain step takes so much more, which fades over ten steps."""
    rng = random.Random(5)
    lengths = lengths or Lengths(8)
    n_tokens, total, since = 0, 0.0, 10
    for step in range(n_steps):
        wish = Wish(8) if lengths.may(sequence) else Wish(0)
        chosen = lengths.choose({sequence: wish}, 1, each).get(sequence, 0)
        n_right = min(right(step, chosen), chosen) if chosen else 0
        lengths.earned(sequence, 1 + n_right)
        if chosen:
            lengths.drafted(chosen * each)
            lengths.accepted([Checked(sequence, chosen, n_right)])
        took = seconds(1 + chosen)
        since = 0 if chosen else since + 1
        took *= 1.0 if chosen else 1.0 + after * max(1.0 - (since - 1) / 10, 0.0)
        slow = 4.0 if rng.random() < noise / 4 else rng.uniform(1 - noise, 1 + noise)
        lengths.took(1 + chosen, took * slow, plain=not chosen)
        total += took + chosen * each
        n_tokens += 1 + n_right
    return total / seconds(1) - n_tokens, n_tokens


@st.composite
def machines(draw: st.DrawFn) -> Callable[[int], float]:
    """A row more costs from nothing to a whole step, the next ones as much or less: rows together
    never take longer than one by one."""
    slope, bend = draw(st.floats(0.0, 1.0)), draw(st.floats(0.5, 1.0))
    level = draw(st.floats(1e-3, 1.0))
    return lambda rows: level * (1.0 + slope * (rows - 1) ** bend)


@settings(deadline=None, max_examples=60)
@given(machines(), st.lists(st.integers(0, 8), min_size=1, max_size=40), st.floats(0.0, 1.0))
def test_no_course_of_guesses_costs_more_than_the_account_holds(
    seconds: Callable[[int], float], course: list[int], each: float
) -> None:
    """`course`: guesses that are right, over and over, among them courses that lead on and fail."""
    lost, n_tokens = loss(
        seconds, lambda step, _: course[step % len(course)], 400, each=each * seconds(1)
    )
    assert lost <= ALLOWANCE + (SHARE + _BELIEF) * n_tokens + _SURPRISE


@settings(deadline=None, max_examples=25)
@given(machines(), st.integers(10, 200))
def test_who_knows_the_machine_loses_no_more_than_allowed(
    seconds: Callable[[int], float], turn: int
) -> None:
    """Guesses are right up to some step and never again; of the second answer's lengths most were
    tried in the first."""
    lengths = Lengths(8)
    loss(seconds, lambda step, length: length if step % 3 else 0, 300, lengths=lengths)
    lengths.forget(0)
    lost, n_tokens = loss(
        seconds,
        lambda step, length: length if step < turn else 0,
        400,
        lengths=lengths,
        sequence=1,
    )
    assert lost <= ALLOWANCE + (SHARE + _BELIEF) * n_tokens + 1.0


@pytest.mark.parametrize("slope", [0.02, 0.2, 0.6])
@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_noise_does_not_hide_a_loss(slope: float, noise: float) -> None:
    lost, n_tokens = loss(
        lambda rows: 1.0 + slope * (rows - 1), lambda step, _: int(step % 7 == 0), 600, noise=noise
    )
    assert lost <= 2 * (ALLOWANCE + SHARE * n_tokens)


@pytest.mark.parametrize("slope", [0.05, 0.2])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_what_plain_steps_after_a_draft_take_more_is_paid_for(slope: float, noise: float) -> None:
    lengths = Lengths(8)
    losses = []
    for sequence in range(20):
        lost, n_tokens = loss(
            lambda rows: 1.0 + slope * (rows - 1),
            lambda step, _: int(step % 9 == 0),
            100,
            noise=noise,
            after=0.06,
            lengths=lengths,
            sequence=sequence,
        )
        lengths.forget(sequence)
        losses.append(lost - ALLOWANCE - (SHARE + _BELIEF / 2) * n_tokens)
    assert sum(losses[5:]) / 15 <= 0.0


def test_aftermath_is_learnt_from_what_comes_later_and_fades() -> None:
    aftermath = Aftermath()
    assert aftermath.ahead == 0.0
    for _ in range(40):
        aftermath.drafted()
        said = [aftermath.more(1, 1.0 + 0.06 * max(1 - i / 12, 0.0)) for i in range(18)]
        assert not aftermath.watching
    assert said[0] == pytest.approx(0.06, rel=0.15)
    assert said[6] == pytest.approx(said[0] / 2)
    assert not any(said[12:])
    assert aftermath.ahead == pytest.approx(said[0] * 6.5, rel=0.02)
    aftermath.drafted()
    assert aftermath.ahead == 0.0  # it is all to come as it is
    aftermath.more(1, 1.0)
    assert aftermath.more(2, 1.0) == 0.0 and not aftermath.watching


def test_a_busy_machine_makes_no_aftermath_that_keeps_guesses_from_being_made() -> None:
    aftermath = Aftermath()
    for _ in range(10):
        aftermath.drafted()
        for i in range(18):
            aftermath.more(1, 5.0 if i < 12 else 1.0)
    assert 0.3 < aftermath.ahead < 0.6


def test_the_check_has_teeth() -> None:
    lost, n_tokens = loss(
        lambda rows: 1.0 + 0.2 * (rows - 1), lambda *_: 0, 400, lengths=Lengths(8, adaptive=False)
    )
    assert lost > 100 * (ALLOWANCE + SHARE * n_tokens) / 6


def test_an_account_is_one_sequences_and_ends_with_it() -> None:
    accounts = Accounts()
    accounts.settle(1, 1.0, 0.0)
    assert accounts.balance(1) == pytest.approx(ALLOWANCE - 1.0)
    assert accounts.balance(2) == ALLOWANCE
    assert accounts.limit(1, 0.3) == 0.3  # one guess, if it can be had
    assert accounts.limit(1, 0.5) == pytest.approx((ALLOWANCE - 1.0) / 2)
    accounts.earn(1, 50)
    accounts.settle(1, 0.2, 3.0)
    assert accounts.balance(1) == pytest.approx(ALLOWANCE - 1.0 + 50 * SHARE + 2.8)
    accounts.forget(1)
    assert accounts.balance(1) == ALLOWANCE


def test_a_prompt_is_read_for_guesses_only_while_all_together_can_afford_it() -> None:
    """A model that guesses reads each prompt first, and is never right: soon it reads no more."""
    lengths = Lengths(4)
    read = 0
    for sequence in range(200):
        behind = 20.0
        for _ in range(40):
            wish = Wish(4, seconds_before=behind, left=400)
            chosen = lengths.choose({sequence: wish}, 1, 0.2).get(sequence, 0)
            lengths.earned(sequence, 1)
            if chosen:
                read += behind > 0
                lengths.drafted(chosen * 0.2 + behind)
                lengths.accepted([Checked(sequence, chosen, 0)])
                behind = 0.0
            lengths.took(1 + chosen, 1.0 + 0.1 * chosen, plain=not chosen)
        lengths.forget(sequence)
    assert 1 <= read <= 6
