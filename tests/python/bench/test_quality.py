"""bench/quality.py: divergences by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import quality
from hypothesis import given
from hypothesis import strategies as st


def scores(seed: int, rows: int, vocab: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, (rows, vocab)).astype(np.float32)


def test_the_same_scores_do_not_diverge() -> None:
    x = scores(0, 70, 50)
    found = quality.divergence(x, x + np.float32(2.0), list(range(50)) + list(range(20)))
    assert found.mean == pytest.approx(0, abs=1e-6)  # a shift is no difference
    assert found.same_likeliest == 1.0
    assert found.perplexity_change == pytest.approx(0, abs=1e-6)


def test_two_tokens_by_hand() -> None:
    """p = (1/2, 1/2), q = (3/4, 1/4) at both positions, and id 1 follows id 0."""
    p = np.zeros((2, 2), np.float32)
    q = np.log(np.array([[3, 1], [3, 1]], np.float32))
    found = quality.divergence(p, q, [0, 1])
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert found.mean == found.median == pytest.approx(expected, rel=1e-6)
    assert found.perplexity_of_reference == pytest.approx(2.0)
    assert found.perplexity == pytest.approx(4.0)
    assert found.perplexity_change == pytest.approx(1.0)


@given(st.integers(0, 100), st.integers(2, 200), st.integers(2, 30))
def test_as_written_in_one_piece(seed: int, rows: int, vocab: int) -> None:
    p, q = scores(seed, rows, vocab), scores(seed + 1, rows, vocab)
    ids = np.random.default_rng(seed).integers(0, vocab, rows).tolist()
    found = quality.divergence(p, q, ids)
    probs = [np.exp(x.astype(np.float64)) for x in (p, q)]
    probs = [x / x.sum(axis=1, keepdims=True) for x in probs]
    each = (probs[0] * np.log(probs[0] / probs[1])).sum(axis=1)
    assert found.mean == pytest.approx(each.mean(), rel=1e-9, abs=1e-12)
    assert found.largest == pytest.approx(each.max(), rel=1e-9, abs=1e-12)
    surprise = [-math.log(probs[1][i, ids[i + 1]]) for i in range(rows - 1)]
    assert found.perplexity == pytest.approx(math.exp(sum(surprise) / len(surprise)))
    same = np.mean(p.argmax(axis=1) == q.argmax(axis=1))
    assert found.same_likeliest == pytest.approx(same)


def test_other_shapes_are_refused() -> None:
    for p, q, ids in (
        (scores(0, 3, 5), scores(0, 3, 6), [0, 1, 2]),
        (scores(0, 3, 5), scores(0, 3, 5), [0, 1]),
        (scores(0, 1, 5), scores(0, 1, 5), [0]),
    ):
        with pytest.raises(ValueError, match="ids, scores"):
            quality.divergence(p, q, ids)


def test_what_is_missed_is_said() -> None:
    def engine(mean: float, perplexity: float) -> quality.Divergence:
        return quality.Divergence(mean, mean, mean, mean, perplexity, 10.0, 1.0)

    native = "native, KV f16"
    assert not quality.misses({native: engine(0.001, 10.04), "llama.cpp": engine(0.001, 11.0)})
    assert not quality.misses({native: engine(0.1, 9.96)})
    [missed] = quality.misses({native: engine(0.002, 10.0), "llama.cpp": engine(0.001, 10.0)})
    assert "diverges by 0.002, llama.cpp by 0.001" in missed
    [missed] = quality.misses({native: engine(0.001, 9.94)})
    assert "-0.60%" in missed
