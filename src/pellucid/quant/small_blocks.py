"""Searches for the scales of blocks of 32, in NumPy: the readable twin of `native/quant`.

`x` is float32 [n, 32], `w` the weights of its squared errors or None. Among the scales that are
tried is the plain one, so a block is never worse than by plain rounding. A scale that half
precision cannot hold comes out infinite.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pellucid.quant.least_squares import (
    Floats,
    Weights,
    affine,
    dot,
    over,
    refit_affine,
    refit_symmetric,
    rounded,
    squared_error,
    symmetric,
)

Halves = NDArray[np.float16]
Signed = NDArray[np.int8]
Unsigned = NDArray[np.uint8]
Steps = Sequence[float]


_HALF_ROUNDS = 2  # of trying the halves beside those that were found
_ROUNDS = 3  # of refitting; a fourth changes less than a thousandth of the error


def symmetric_blocks(
    x: Floats, w: Weights, low: int, high: int, plain: int, steps: Steps
) -> tuple[Halves, Signed]:
    """x [n, 32] = d * q: d, float16 [n], and q, int8 [n, 32], from `low` to `high`.

    `plain` is where plain rounding puts the value of largest magnitude.
    """
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)[:, 0]
    tried = [largest / np.float32(-plain), symmetric(x, w, low, high, steps)]
    for _ in range(_ROUNDS):
        tried.append(refit_symmetric(x, w, tried[-1], low, high))
    # What is beyond half precision stays infinite, for the caller to refuse.
    best, d = np.full(len(x), np.inf, np.float32), np.full(len(x), np.inf, np.float16)
    for scale in tried:
        half = scale.astype(np.float16)
        q = _grid(x, half, low, high)
        error = squared_error(x, q * _column(half), w)
        better = error < best
        best, d = np.where(better, error, best), np.where(better, half, d)
    # What was rounded to a half is not always best at the nearest; a grid that a block was on
    # before is found again so.
    for _ in range(_HALF_ROUNDS):
        for up in (-1, 1):
            half = _beside(d, up)
            error = squared_error(x, _grid(x, half, low, high) * _column(half), w)
            better = (error < best) & np.isfinite(d)
            best, d = np.where(better, error, best), np.where(better, half, d)
    return d, _grid(x, d, low, high).astype(np.int8)


def affine_blocks(
    x: Floats, w: Weights, levels: int, steps: Steps
) -> tuple[Halves, Halves, Unsigned]:
    """x [n, 32] = d * q + m: d and m, float16 [n], and q, uint8 [n, 32], from 0 to `levels`."""
    low = x.min(axis=1)
    tried = [((x.max(axis=1) - low) / np.float32(levels), low)]
    tried.append(affine(x, w, levels, steps, below_zero=False))
    for _ in range(_ROUNDS):
        tried.append(refit_affine(x, w, *tried[-1], levels, below_zero=False))
    best = np.full(len(x), np.inf, np.float32)
    d, m = np.full(len(x), np.inf, np.float16), np.zeros(len(x), np.float16)

    def keep_better(half: Halves, half_m: Halves, allowed: NDArray[np.bool_] | bool) -> None:
        nonlocal best, d, m
        q = _grid(x - _column(half_m), half, 0, levels)
        error = squared_error(x, q * _column(half) + _column(half_m), w)
        better = (error < best) & allowed
        best = np.where(better, error, best)
        d, m = np.where(better, half, d), np.where(better, half_m, m)

    for scale, offset in tried:
        keep_better(scale.astype(np.float16), offset.astype(np.float16), True)
    for _ in range(_HALF_ROUNDS):
        for up in (-1, 0, 1):
            for up_m in (-1, 0, 1):
                if up or up_m:
                    keep_better(_beside(d, up), _beside(m, up_m), np.isfinite(best))
    # The offset of tiny values can be worse than none, where the scale is below half precision; by
    # whatever weights.
    q = _grid(x - _column(m), d, 0, levels)
    plain = squared_error(x, q * _column(d) + _column(m), None) > dot(x, x)
    nothing = np.isfinite(best) & ((dot(x, x, w) < best) | plain)
    d, m = (np.where(nothing, np.float16(0), half) for half in (d, m))
    return d, m, _grid(x - _column(m), d, 0, levels).astype(np.uint8)


def _beside(half: Halves, steps: int) -> Halves:
    """The halves that are `steps` above, in the order of their values; none is infinite."""
    bits = half.view(np.uint16).astype(np.int32)
    place = np.where(bits & 0x8000, -(bits & 0x7FFF), bits & 0x7FFF) + steps
    place = np.clip(place, -0x7BFF, 0x7BFF)
    moved: Halves = np.where(place < 0, 0x8000 | -place, place).astype(np.uint16).view(np.float16)
    return moved


def _column(half: Halves) -> Floats:
    return half.astype(np.float32)[:, None]


def _grid(x: Floats, d: Halves, low: int, high: int) -> Floats:
    """The nearest q to x / d, where d is what will be stored."""
    d32 = d.astype(np.float32)
    return rounded(x * over(np.ones_like(d32), d32)[:, None], low, high)
