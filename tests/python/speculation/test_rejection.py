"""Rejection sampling keeps the distribution: chi-square over thousands of draws, and a fault that
the same test finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid.core.params import SamplingParams
from pellucid.sampling import Draw, History, Sampler
from pellucid.speculation import rejection
from pellucid.speculation.drafter import Guess
from pellucid.speculation.rejection import choose, choose_rows, drawn_guess

VOCABULARY = 9
DRAWS = 4000
SAMPLER = Sampler()


def chi_square(counts: Counter[int], expected: NDArray[np.float64]) -> float:
    """Pearson's statistic over the tokens that may come; infinite if another one came."""
    total = sum(counts.values())
    if any(expected[token] == 0 for token in counts):
        return float("inf")
    return sum(
        (counts[token] - total * chance) ** 2 / (total * chance)
        for token, chance in enumerate(expected)
        if chance > 0
    )


def limit(expected: NDArray[np.float64]) -> float:
    """What the statistic exceeds once in 100,000 (Wilson and Hilferty 1931)."""
    degrees = np.count_nonzero(expected) - 1
    return float(degrees * (1 - 2 / (9 * degrees) + 4.265 * (2 / (9 * degrees)) ** 0.5) ** 3)


def rows(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scores of a model and of its draft, which are alike but not equal."""
    rng = np.random.default_rng(seed)
    own = rng.normal(0, 1.5, VOCABULARY)
    return own.astype(np.float32), (own + rng.normal(0, 1.2, VOCABULARY)).astype(np.float32)


def draw(seed: int, params: SamplingParams) -> Draw:
    return Draw(params, seed, 5, History([1, 2, 3]))


def expected_of(logits: NDArray[np.float32], params: SamplingParams) -> NDArray[np.float64]:
    found = SAMPLER.distribution(logits, draw(0, params))
    expected = np.zeros(VOCABULARY)
    expected[found.ids] = found.probabilities
    return expected


def outcomes(params: SamplingParams, case: int, looked_up: int | None = None) -> Counter[int]:
    own, theirs = rows(case)
    counts: Counter[int] = Counter()
    for seed in range(DRAWS):
        one = draw(seed, params)
        guessed = drawn_guess(SAMPLER, theirs, one) if looked_up is None else Guess(looked_up)
        counts[choose(SAMPLER, own, one, guessed).token_id] += 1
    return counts


WAYS = [
    SamplingParams(),
    SamplingParams(temperature=0.6, top_k=5),
    SamplingParams(temperature=1.4, top_p=0.8, repetition_penalty=1.3),
]


@pytest.mark.parametrize("params", WAYS)
@pytest.mark.parametrize("looked_up", [None, 2])
def test_the_distribution_is_the_models_own(params: SamplingParams, looked_up: int | None) -> None:
    expected = expected_of(rows(0)[0], params)
    assert chi_square(outcomes(params, 0, looked_up), expected) < limit(expected)


def _takes_every_guess(patch: pytest.MonkeyPatch) -> None:
    real = rejection.uniform
    patch.setattr(
        rejection,
        "uniform",
        lambda seed, at, use="draw": -1.0 if use == "accept" else real(seed, at, use),
    )


def _draws_the_rest_from_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rejection.np, "maximum", lambda rest, zero: np.abs(rest) + 0.05)


@pytest.mark.parametrize("fault", [_takes_every_guess, _draws_the_rest_from_all])
def test_the_test_has_teeth(monkeypatch: pytest.MonkeyPatch, fault: object) -> None:
    expected = expected_of(rows(0)[0], WAYS[0])
    fault(monkeypatch)  # type: ignore[operator]
    assert chi_square(outcomes(WAYS[0], 0), expected) > 3 * limit(expected)


def test_greedy_is_the_likeliest_whatever_was_guessed() -> None:
    own, _ = rows(0)
    one = draw(0, SamplingParams(temperature=0))
    for token in range(VOCABULARY):
        assert choose(SAMPLER, own, one, Guess(token)).token_id == int(np.argmax(own))


def test_a_draft_like_the_model_is_accepted() -> None:
    own, _ = rows(0)
    for seed in range(200):
        one = draw(seed, SamplingParams())
        guessed = drawn_guess(SAMPLER, own, one)
        assert choose(SAMPLER, own, one, guessed).token_id == guessed.token


def test_rows_without_a_guess_are_drawn_as_ever() -> None:
    own, theirs = rows(0)
    logits = np.stack([own, theirs])
    draws = [draw(3, SamplingParams()), draw(4, SamplingParams())]
    plain = SAMPLER.choose_rows(logits, [0, 1], draws)
    assert choose_rows(SAMPLER, logits, [0, 1], draws, [None, None]) == plain
    mixed = choose_rows(SAMPLER, logits, [0, 1], draws, [None, Guess(2)])
    assert mixed[0] == plain[0]
    assert mixed[1] == choose(SAMPLER, theirs, draws[1], Guess(2))
