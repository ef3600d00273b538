"""Errors of keys fed on: they lie where queries do not look, and nothing else changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.ops.key_prior import feedback_rows, padded
from pellucid.ops.reference.pages import new_pages


def stored(keys: np.ndarray, feedback: np.ndarray | None) -> np.ndarray:
    """keys [n, heads, head_dim] in int4 and back."""
    n, heads, head_dim = keys.shape
    side = new_pages("int4", (1, n, heads), head_dim)
    side.store(np.zeros(n, np.int64), np.arange(n), keys, feedback)
    return np.asarray(side.read(np.array([0])))[0]


@given(st.sampled_from([16, 40, 64, 96, 128]), st.integers(0, 1 << 30))
@settings(max_examples=8, deadline=None)
def test_scores_lose_less(head_dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((2, 300, head_dim)) * np.exp(rng.normal(0, 1.5, head_dim))
    queries = queries @ np.linalg.qr(rng.standard_normal((head_dim, head_dim)))[0]
    keys = rng.standard_normal((200, 2, head_dim)).astype(np.float32)
    feedback = feedback_rows(queries.transpose(0, 2, 1) @ queries / 300)
    assert feedback.shape == (2, padded(head_dim), padded(head_dim))
    losses = []
    for rows in (None, feedback):
        error = stored(keys, rows) - keys
        losses.append(float(np.square(np.einsum("hqd,nhd->hqn", queries, error)).mean()))
    assert losses[1] < 0.75 * losses[0]


def test_without_queries_errors_stay_where_they_are() -> None:
    keys = np.random.default_rng(0).standard_normal((50, 2, 64)).astype(np.float32)
    rows = feedback_rows(np.zeros((2, 64, 64)))
    assert not rows.any()
    assert np.array_equal(stored(keys, rows), stored(keys, None))


def test_what_is_no_number_feeds_nothing_on() -> None:
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((3, 1, 128)).astype(np.float32)
    keys[1, 0, 5] = np.nan
    q = rng.standard_normal((1, 300, 128)) * np.exp(rng.normal(0, 1.5, 128))
    rows = feedback_rows(q.transpose(0, 2, 1) @ q)
    fed, plain = stored(keys, rows), stored(keys, None)
    assert np.array_equal(fed[1], plain[1], equal_nan=True)
    assert np.isfinite(fed[[0, 2]]).all()
    assert not np.array_equal(fed[0], plain[0])
