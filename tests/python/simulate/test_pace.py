"""A machine's pace: what is played back is what was measured, whatever the steps are."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.simulate.draws import draws
from pellucid.simulate.pace import PIECE_S, Pace

seconds = st.floats(1e-4, 3.0)
paces = st.builds(Pace.of, st.lists(st.tuples(seconds, seconds), min_size=1, max_size=40))


@settings(max_examples=100, deadline=None)
@given(paces, st.floats(0, 100))
def test_work_and_time_are_inverse_and_end_alike(pace: Pace, at: float) -> None:
    assert pace.when(pace.done(at)) == pytest.approx(at, abs=1e-6)
    rounds = pace.times[-1]
    assert pace.done(at + rounds) == pytest.approx(pace.done(at) + rounds, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(paces, st.floats(0, 100), st.floats(1e-3, 5), st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_step_takes_what_its_halves_take_one_after_the_other(
    pace: Pace, now: float, work: float, part: float, seed: int
) -> None:
    played = pace.played(draws(seed, 3))
    first = played.seconds(now, part * work)
    both = first + played.seconds(now + first, (1 - part) * work)
    assert played.seconds(now, work) == pytest.approx(both, rel=1e-6, abs=1e-7)
    assert pickle.loads(pickle.dumps(pace)) == pace  # noqa: S301
    assert played.seconds(now, work) == pace.played(draws(seed, 3)).seconds(now, work)


def test_a_pace_that_is_even_adds_nothing() -> None:
    assert Pace().played(draws(1, 1)).seconds(3.0, 0.25) == 0.25
    assert Pace.of([]) == Pace()
    steady = Pace.of([(0.01, 0.02)] * 50).played(draws(1, 1))
    assert steady.seconds(0.7, 2.5) == pytest.approx(2.5)


def test_spells_are_kept_together_and_make_up_for_one_another() -> None:
    """Of a machine that is half as fast for 200 ms in each second."""
    spell = [(0.02, 0.01)] * 10 + [(0.01, 0.0128)] * 80
    played = Pace.of(spell).played(draws(7, 1))
    now, took = 0.0, []
    while now < 400:
        took.append(played.seconds(now, 0.01))
        now += took[-1]
    mean = math.fsum(took) / len(took)
    assert mean == pytest.approx(0.01, rel=0.03)
    slow = [step > 0.015 for step in took]
    share = sum(slow) / len(slow)
    assert 0.05 < share < 0.2
    after = sum(b for a, b in pairwise(slow) if a) / sum(slow)
    assert after > 0.85  # after a slow step comes another
    # A step of a whole second meets both.
    long = [played.seconds(PIECE_S * k, 1.0) for k in range(300)]
    assert max(long) < 1.35
    assert math.fsum(long) / len(long) == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize(
    ("times", "work"),
    [
        ((), ()),
        ((0.0, 1.0), (0.0,)),
        ((1.0, 2.0), (0.0, 1.0)),
        ((0.0, 1.0), (0.0, 2.0)),
        ((0.0, 1.0, 0.5), (0.0, 0.2, 0.5)),
    ],
)
def test_what_is_no_pace_is_refused(times: tuple[float, ...], work: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="a pace"):
        Pace(times, work)
