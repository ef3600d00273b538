"""Least squares whose solution has no negative term: Lawson and Hanson's active sets."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

_ROUNDS: Final = 10  # per term; more than ever needed where arithmetic is exact


def non_negative(a: Float64, b: Float64) -> Float64:
    """x >= 0 that makes |a x - b| least; a [rows, terms], b [rows] -> x [terms].

    Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23.
    """
    n = a.shape[1]
    sizes = np.linalg.norm(a, axis=0)
    sizes[sizes == 0] = 1.0
    a = a / sizes  # terms of very different sizes would drown in rounding
    x = np.zeros(n)
    free = np.zeros(n, np.bool_)
    tolerance = 1e-10 * max(1.0, float(np.abs(a.T @ b).max(initial=0.0)))
    for _ in range(_ROUNDS * n):
        gradient = a.T @ (b - a @ x)
        gradient[free] = -np.inf
        best = int(gradient.argmax())
        if gradient[best] <= tolerance:
            break
        free[best] = True
        x = _within(a, b, x, free)
    found: Float64 = x / sizes
    return found


def _within(a: Float64, b: Float64, x: Float64, free: NDArray[np.bool_]) -> Float64:
    """The best x of the free terms; those that would be negative are held at 0 again."""
    while True:
        trial = np.zeros_like(x)
        trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
        negative = free & (trial <= 0)
        if not negative.any():
            return trial
        steps = x[negative] / (x[negative] - trial[negative])
        x = x + float(steps.min()) * (trial - x)
        free &= x > 1e-14 * max(1.0, float(np.abs(x).max()))
        x[~free] = 0.0
