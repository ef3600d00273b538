"""Confidence: what a drafter says of its guesses, held against what became of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.speculation.acceptance import Acceptance
from pellucid.speculation.confidence import Confidence, Worth
from pellucid.speculation.lengths import Checked, Lengths, Wish


@pytest.mark.parametrize(("said", "true"), [(0.95, 0.95), (0.95, 0.6), (0.3, 0.7), (0.999, 0.2)])
def test_what_is_said_is_corrected_by_what_comes(said: float, true: float) -> None:
    rng = random.Random(3)
    confidence = Confidence()
    assert confidence.of(said) == pytest.approx(said)
    for _ in range(2000):
        confidence.note(said, rng.random() < true)
    assert confidence.of(said) == pytest.approx(true, abs=0.12)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans())), st.floats(0, 1))
def test_it_is_always_a_probability(seen: list[tuple[float, bool]], chance: float) -> None:
    confidence = Confidence()
    for said, right in seen:
        confidence.note(said, right)
    assert 0.0 <= confidence.of(chance) <= 1.0
    assert 0.0 <= confidence.typical <= 1.0


def test_a_sure_draft_goes_on_and_an_unsure_one_ends() -> None:
    worth = Worth(Confidence(), row=0.1, more=0.4)
    assert worth.goes_on(worth.after(1.0, 0.99))
    assert not worth.goes_on(worth.after(1.0, 0.3))
    assert not worth.goes_on(worth.after(0.5, 0.9))


def test_dearer_guesses_must_be_surer() -> None:
    lengths = Lengths(6)
    assert lengths.worth(1, 6, 0.2) is None  # nothing is known yet
    for _ in range(8):
        lengths.took(1, 1.0, plain=True)
        lengths.took(7, 1.6, plain=False)
    cheap, dear = lengths.worth(1, 6, 0.1), lengths.worth(1, 6, 0.4)
    assert cheap is not None and dear is not None
    assert 0.05 < cheap.row == dear.row < cheap.more < dear.more <= 0.9
    assert Lengths(6, adaptive=False).worth(1, 6, 0.1) is None


def test_a_draft_that_ended_early_counts_as_no_token_and_no_cost() -> None:
    acceptance = Acceptance()
    for _ in range(200):
        acceptance.note(0, 0, 2, 2, ended=True)
    right, made = acceptance.chances(0, 0, 4), acceptance.made(0, 4)
    assert min(right[:2]) > 0.9 and right[2] < 0.1
    assert min(made[:2]) > 0.9 and max(made[2:]) < 0.1


def test_ending_early_pays_where_a_drafter_knows_when_it_is_right() -> None:
    """Four guesses of five are sure and right; a guess takes a third of a plain step."""
    assert _rate(stops=True) > 1.08 * _rate(stops=False) > 1.2


def _rate(*, stops: bool) -> float:
    rng = random.Random(11)
    lengths = Lengths(6)
    n_tokens = total = 0.0
    for _ in range(1500):
        wanted = lengths.choose({0: Wish(6)}, 1, 0.3).get(0, 0)
        worth = lengths.worth(1, wanted, 0.3) if wanted and stops else None
        chances: list[float] = []
        survives = 1.0
        while len(chances) < wanted:
            chances.append(rng.choice([0.98] * 4 + [0.1]))
            if worth is not None:
                survives = worth.after(survives, chances[-1])
                if not worth.goes_on(survives):
                    break
        n_right = next(
            (i for i, chance in enumerate(chances) if rng.random() > chance), len(chances)
        )
        seconds = 1.0 + 0.05 * len(chances)
        if chances:
            checked = Checked(0, len(chances), n_right, len(chances) < wanted, chances)
            lengths.accepted([checked])
        lengths.took(1 + len(chances), seconds, plain=not chances)
        n_tokens += 1 + n_right
        total += seconds + 0.3 * len(chances)
    return n_tokens / total
