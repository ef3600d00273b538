"""min-p, top-k and top-p against plain Python, and at their borders."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pellucid.sampling.filters import candidates, highest
from tests.python.sampling.oracle import keep

# Steps of a quarter, so that ties are common.
scores_lists = st.lists(
    st.one_of(st.just(-math.inf), st.integers(-40, 0).map(lambda i: i / 4)), min_size=1, max_size=40
).map(
    lambda scores: [score - max(scores) for score in scores] if max(scores) > -math.inf else [0.0]
)


def run(scores: list[float], min_p: float = 0.0, top_k: int = 0, top_p: float = 1.0) -> list[int]:
    return candidates(np.asarray(scores), min_p, top_k, top_p).tolist()


@given(
    scores_lists,
    st.sampled_from([0.0, 0.1, 0.3, 1.0]),
    st.integers(-1, 50),
    st.sampled_from([0.01, 0.3, 0.77, 0.9, 0.95, 1.0]),
)
def test_as_plain_python(scores: list[float], min_p: float, top_k: int, top_p: float) -> None:
    assert run(scores, min_p, top_k, top_p) == keep(scores, min_p, top_k, top_p)


@given(st.lists(st.integers(-6, 6).map(float), min_size=1, max_size=60), st.integers(1, 70))
def test_highest_ranks_by_score_then_id(scores: list[float], count: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]
    assert highest(np.asarray(scores), count).tolist() == expected


@given(scores_lists, st.integers(1, 40), st.floats(0.01, 1.0))
def test_the_highest_ranked_is_always_kept(scores: list[float], k: int, p: float) -> None:
    best = max(range(len(scores)), key=lambda i: (scores[i], -i))
    assert best in run(scores, min_p=p, top_k=k, top_p=p)


def test_off_keeps_all_that_are_not_banned() -> None:
    assert run([0.0, -math.inf, -700.0, -1.0]) == [0, 2, 3]
    assert run([0.0, -1.0], top_k=-1) == run([0.0, -1.0], top_k=0) == [0, 1]


def test_top_k_takes_exactly_k_of_equals_lower_ids_first() -> None:
    assert run([-1.0, 0.0, 0.0, 0.0, 0.0], top_k=3) == [1, 2, 3]


def test_top_p_stops_where_the_mass_reaches_it_exactly() -> None:
    assert run([0.0] * 4, top_p=0.5) == [0, 1]
    assert run([0.0] * 4, top_p=0.5 + 1e-9) == [0, 1, 2]


def test_top_p_of_almost_nothing_keeps_one() -> None:
    assert run([-1.0, 0.0, -1.0], top_p=1e-12) == [1]


def test_min_p_keeps_what_equals_the_border() -> None:
    half = math.log(0.5)
    border = float(np.exp(np.float64(half)))
    assert run([0.0, half, half - 0.01], min_p=border) == [0, 1]
    assert run([0.0, 0.0, -1e-9], min_p=1.0) == [0, 1]


def test_top_p_counts_the_mass_that_min_p_and_top_k_left() -> None:
    # Four equal tokens after top-k: half of their mass is two, whatever the tail held.
    assert run([0.0] * 4 + [-0.1] * 1000, top_k=4, top_p=0.5) == [0, 1]
    assert run([0.0] * 4 + [-2.0] * 1000, min_p=0.5, top_p=0.5) == [0, 1]


@pytest.mark.parametrize("size", [200, 3000, 20000])
def test_a_wide_nucleus_is_found_in_growing_looks(size: int) -> None:
    scores = -np.random.default_rng(size).random(size)
    scores -= scores.max()
    ranked = np.argsort(-scores, kind="stable")
    mass = np.cumsum(np.exp(scores[ranked]))
    expected = ranked[: int(np.argmax(mass >= 0.9 * np.exp(scores).sum())) + 1]
    assert run(scores.tolist(), top_p=0.9) == sorted(expected.tolist())


@given(scores_lists, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_larger_top_p_never_keeps_less(scores: list[float], p: float, q: float) -> None:
    assume(p < q)
    assert set(run(scores, top_p=p)) <= set(run(scores, top_p=q))
