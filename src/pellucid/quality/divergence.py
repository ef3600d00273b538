"""How well each token of a text was predicted, and how far from another model's prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

_ROWS = 32  # at a time, so that float64 copies stay small


@dataclass(frozen=True, slots=True)
class PerToken:
    """For each scored token, in order: `surprise` -log p of it, in nats. Where there is a model to
    be held against, `divergence` KL(its || ours) of the whole distribution, in nats, and `same`
    whether both find the same token likeliest."""

    surprise: Float64
    divergence: Float64 | None = None
    same: NDArray[np.bool_] | None = None


def joined(parts: list[PerToken]) -> PerToken:
    """One after another."""
    surprise = np.concatenate([part.surprise for part in parts])
    divergences = [part.divergence for part in parts if part.divergence is not None]
    same = [part.same for part in parts if part.same is not None]
    if not divergences:
        return PerToken(surprise)
    return PerToken(surprise, np.concatenate(divergences), np.concatenate(same))


def per_token(rows: Float32, following: NDArray[np.int64], against: Float32 | None) -> PerToken:
    """Of scores [m, vocabulary] and the tokens [m] that followed; `against` as `rows`."""
    parts = []
    for start in range(0, len(rows), _ROWS):
        piece = slice(start, start + _ROWS)
        other = None if against is None else against[piece]
        parts.append(_of_piece(rows[piece], following[piece], other))
    return joined(parts)


def _of_piece(rows: Float32, following: NDArray[np.int64], against: Float32 | None) -> PerToken:
    q = _log_softmax(rows)
    surprise = -q[np.arange(len(q)), following]
    if against is None:
        return PerToken(surprise)
    p = _log_softmax(against)
    same = rows.argmax(axis=1) == against.argmax(axis=1)
    np.subtract(p, q, out=q)
    np.exp(p, out=p)
    return PerToken(surprise, np.einsum("nk,nk->n", p, q), same)


def _log_softmax(scores: Float32) -> Float64:
    shifted = scores.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted
