"""What is known of a layer's keys before any is stored, and what follows for rounding them.

Keys in blocks are stored less what they have in common. In int4 their errors are fed on as well:
once a feature is rounded, its error is taken out of the features after it, so that the error of
the whole lies where queries do not look. With M the mean of q q^T and e a key's error, scores lose
e^T M e; rounding feature by feature with feedback by a Cholesky factor of M's inverse makes that
small (Frantar et al. 2022, "GPTQ", who do it for weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.costs import KV_BLOCK, KV_PADDING

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

FIRST = 16  # positions: the first of a text draw attention whatever they say, by keys unlike others
MOST_FED = 1024  # features of a key whose errors can be fed on
# Of the mean of M's diagonal, added to it. From 0.01 to 0.1 errors changed by 1 to 6 %.
_DAMPING = 0.03


@dataclass(frozen=True, slots=True)
class KeyPrior:
    """Weights of a backend. mean [n_kv_heads head_dim]: what keys are on average, before they are
    turned by their positions. first [n_kv_heads head_dim]: what those of the first `FIRST`
    positions are stored less of, instead. feedback [n_kv_heads, dim, dim]: `feedback_rows`."""

    mean: Any
    first: Any = None
    feedback: Any = None


def padded(head_dim: int) -> int:
    """Features that a key in blocks has."""
    return -(-head_dim // KV_PADDING) * KV_PADDING


def feedback_rows(moments: Float64) -> Float32:
    """How errors are fed on, float32 [heads, dim, dim]: after feature j of a rotated key is
    rounded, its error times row j is taken from the features beyond it.

    moments: mean of q q^T over the queries of each head, [heads, head_dim, head_dim]. Zeros (errors
    stay where they are) of a head whose queries say nothing.
    """
    head_dim = moments.shape[-1]
    dim = padded(head_dim)
    back = _rotation_back(dim)[:head_dim]  # a key from its rotated blocks
    rows = np.zeros((len(moments), dim, dim))
    for head, of_queries in enumerate(moments):
        seen = back.T @ of_queries @ back
        level = float(np.diag(seen).mean())
        if not np.isfinite(seen).all() or level <= 0:
            continue
        inverse = np.linalg.inv(seen + _DAMPING * level * np.eye(dim))
        factor = np.linalg.cholesky((inverse + inverse.T) / 2)
        rows[head] = np.triu((factor / np.diag(factor)).T, 1)
    return rows.astype(np.float32)


def _rotation_back(dim: int) -> Float64:
    """The inverse of the rotation of blocks (`reference/pages.py`), [dim, dim]."""
    matrix = np.zeros((dim, dim))
    for begin in range(0, dim, KV_BLOCK):
        end = min(begin + KV_BLOCK, dim)
        hadamard = np.ones((1, 1))
        while len(hadamard) < end - begin:
            hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
        matrix[begin:end, begin:end] = hadamard * 0.125
    return matrix
