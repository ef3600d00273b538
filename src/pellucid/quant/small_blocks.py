"""Quantisers of the types with blocks of 32: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.

Each takes x, float32 [n, 32], and weights of the squared errors or None, and gives n blocks. Among
the scales that are tried is the plain one, so a block is never worse than by plain rounding.
"""

from __future__ import annotations

import numpy as np

from pellucid.quant import pack
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
from pellucid.quant.pack import Blocks, Bytes, Halves
from pellucid.quant.types import TensorType

# Where the largest value is put, around the end of the grid. Beyond it, the largest is cut off
# and all others are finer.
_STEPS = {
    4: np.linspace(-1.7, 1.1, 15) + 8,
    5: np.linspace(-1.7, 1.7, 15) + 16,
    8: np.linspace(-5.0, 0.49, 12) + 127,
}
_AFFINE_STEPS = {4: np.linspace(-1.5, 2.0, 15) + 15, 5: np.linspace(-1.5, 2.0, 15) + 31}
_ROUNDS = 3  # of refitting; a fourth changes less than a thousandth of the error


def q8_0(x: Floats, w: Weights) -> Blocks:
    d, q = _symmetric(x, w, -127, 127, 127, 8)
    return pack.q8_0(d, q.astype(np.int8))


def q4_0(x: Floats, w: Weights) -> Blocks:
    d, q = _symmetric(x, w, -8, 7, 8, 4)
    return pack.four_bits(TensorType.Q4_0, d, None, _stored(q, 8))


def q5_0(x: Floats, w: Weights) -> Blocks:
    d, q = _symmetric(x, w, -16, 15, 16, 5)
    return pack.five_bits(TensorType.Q5_0, d, None, _stored(q, 16))


def q4_1(x: Floats, w: Weights) -> Blocks:
    d, m, q = _affine(x, w, 4)
    return pack.four_bits(TensorType.Q4_1, d, m, _stored(q, 0))


def q5_1(x: Floats, w: Weights) -> Blocks:
    d, m, q = _affine(x, w, 5)
    return pack.five_bits(TensorType.Q5_1, d, m, _stored(q, 0))


def _stored(q: Floats, zero: int) -> Bytes:
    return (q + np.float32(zero)).astype(np.uint8)


def _symmetric(
    x: Floats, w: Weights, low: int, high: int, plain: int, bits: int
) -> tuple[Halves, Floats]:
    """Half-precision scales [n] and q [n, 32]; `plain` is where plain rounding puts the largest."""
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)[:, 0]
    tried = [largest / np.float32(-plain), symmetric(x, w, low, high, _STEPS[bits])]
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
    return d, _grid(x, d, low, high)


def _affine(x: Floats, w: Weights, bits: int) -> tuple[Halves, Halves, Floats]:
    """Half-precision scales and offsets [n] and q [n, 32]."""
    levels = (1 << bits) - 1
    low = x.min(axis=1)
    tried = [((x.max(axis=1) - low) / np.float32(levels), low)]
    tried.append(affine(x, w, levels, _AFFINE_STEPS[bits], below_zero=False))
    for _ in range(_ROUNDS):
        tried.append(refit_affine(x, w, *tried[-1], levels, below_zero=False))
    best = np.full(len(x), np.inf, np.float32)
    d, m = np.full(len(x), np.inf, np.float16), np.zeros(len(x), np.float16)
    for scale, offset in tried:
        half, half_m = scale.astype(np.float16), offset.astype(np.float16)
        q = _grid(x - _column(half_m), half, 0, levels)
        error = squared_error(x, q * _column(half) + _column(half_m), w)
        better = error < best
        best = np.where(better, error, best)
        d, m = np.where(better, half, d), np.where(better, half_m, m)
    # The offset of tiny values can be worse than none, where the scale is below half precision.
    nothing = np.isfinite(best) & (dot(x, x, w) < best)
    d, m = (np.where(nothing, np.float16(0), half) for half in (d, m))
    return d, m, _grid(x - _column(m), d, 0, levels)


def _column(half: Halves) -> Floats:
    return half.astype(np.float32)[:, None]


def _grid(x: Floats, d: Halves, low: int, high: int) -> Floats:
    """The nearest q to x / d, where d is what will be stored."""
    d32 = d.astype(np.float32)
    return rounded(x * over(np.ones_like(d32), d32)[:, None], low, high)
