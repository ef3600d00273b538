"""Divergences by hand and by SciPy's definition, whatever the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.quality.divergence import joined, per_token


def test_two_tokens_by_hand() -> None:
    """Scores are logarithms of 1/4, 3/4 and of 1/2, 1/2."""
    ours, theirs = np.log([[1, 3]], dtype=np.float32), np.log([[1, 1]], dtype=np.float32)
    found = per_token(ours, np.array([1]), theirs)
    assert found.surprise == pytest.approx(-np.log(3 / 4), abs=1e-6)
    expected = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert found.divergence == pytest.approx(expected, abs=1e-6)
    assert found.same is not None and not found.same[0]  # a tie goes to the first


@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_as_defined_and_in_any_pieces(n: int) -> None:
    rng = np.random.default_rng(n)
    q, p = (3 * rng.standard_normal((2, n, 17))).astype(np.float32)
    following = rng.integers(0, 17, n)
    whole = per_token(q, following, p)
    probabilities = [np.exp(x.astype(np.float64)) for x in (q, p)]
    qs, ps = (x / x.sum(axis=1, keepdims=True) for x in probabilities)
    np.testing.assert_allclose(whole.surprise, -np.log(qs[np.arange(n), following]), atol=1e-9)
    np.testing.assert_allclose(whole.divergence, (ps * np.log(ps / qs)).sum(axis=1), atol=1e-9)
    np.testing.assert_array_equal(whole.same, q.argmax(axis=1) == p.argmax(axis=1))
    cut = n // 2
    if cut:
        parts = [slice(0, cut), slice(cut, n)]
        again = joined([per_token(q[part], following[part], p[part]) for part in parts])
        np.testing.assert_array_equal(again.divergence, whole.divergence)
        np.testing.assert_array_equal(again.surprise, whole.surprise)
    alone = per_token(q, following, None)
    assert alone.divergence is None and alone.same is None
    np.testing.assert_array_equal(alone.surprise, whole.surprise)


def test_large_scores_neither_overflow_nor_diverge_from_themselves() -> None:
    rows = np.array([[1e30, -1e30, 0, 5]], np.float32)
    found = per_token(rows, np.array([0]), rows)
    assert found.surprise[0] == 0 and found.divergence is not None
    assert found.divergence[0] == 0
