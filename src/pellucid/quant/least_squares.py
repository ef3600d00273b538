"""Scales by weighted least squares: how each group of a row is put on a grid of integers.

A group x of k values becomes `scale * q` (symmetric) or `scale * q + offset` (affine) with whole
numbers q. For given q the best scale is a quotient of sums; for a given scale the best q is
rounding. The error has many local minima, so each search walks over scales around the plain one
(largest value on the last grid point), takes the best, and then lets the two steps follow each
other. Every function works on many groups at once; `w` are the weights of the squared errors,
float32 [n, k], or None where all count alike.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Weights = Floats | None

# Sums of squares below this are those of zeros.
_TINY = np.float32(1e-37)


def dot(a: Floats, b: Floats, w: Weights = None) -> Floats:
    """Row by row: sum of a * b * w, [n, k] -> [n]."""
    product: Floats = np.einsum("nk,nk->n", a, b if w is None else b * w)
    return product


def total(a: Floats, w: Weights) -> Floats:
    """Row by row: sum of a * w, [n, k] -> [n]."""
    summed: Floats = a.sum(axis=1) if w is None else np.einsum("nk,nk->n", a, w)
    return summed


def over(a: Floats, b: Floats) -> Floats:
    """a / b, and 0 where b is 0: such a group holds nothing to scale."""
    nothing = np.abs(b) < _TINY
    return np.where(nothing, np.float32(0), a / np.where(nothing, np.float32(1), b))


def rounded(scaled: Floats, low: int, high: int) -> Floats:
    """The nearest whole numbers within [low, high], still float32; in place."""
    np.rint(scaled, out=scaled)
    np.maximum(scaled, low, out=scaled)
    np.minimum(scaled, high, out=scaled)
    return scaled


def squared_error(x: Floats, restored: Floats, w: Weights) -> Floats:
    """Row by row, [n]. `restored` is overwritten."""
    np.subtract(x, restored, out=restored)
    return dot(restored, restored, w)


def symmetric(x: Floats, w: Weights, low: int, high: int, steps: Iterable[float]) -> Floats:
    """Scales [n] for x [n, k] = scale * q, q within [low, high].

    The value of largest magnitude is put at -step for each of `steps`; scales may be negative.
    """
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    unit = over(np.full_like(extreme, -1), extreme)
    wx = x if w is None else x * w
    best, scale = np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)
    for step in steps:
        q = rounded(x * (unit * np.float32(step)), low, high)
        xq, qq = dot(wx, q), dot(q, q, w)
        # A least-squares scale lowers the error of all zeros by this much.
        gain = over(xq * xq, qq)
        better = gain > best
        best = np.where(better, gain, best)
        scale = np.where(better, over(xq, qq), scale)
    return scale


def refit_symmetric(x: Floats, w: Weights, scale: Floats, low: int, high: int) -> Floats:
    """One round more: the q of `scale`, and the scale of those q. [n]."""
    q = rounded(x * over(np.ones_like(scale), scale)[:, None], low, high)
    return over(dot(x, q, w), dot(q, q, w))


def affine(
    x: Floats, w: Weights, levels: int, steps: Iterable[float], *, below_zero: bool
) -> tuple[Floats, Floats]:
    """Scales and offsets, [n] each, for x [n, k] = scale * q + offset, q within [0, levels].

    The range of x is laid over each of `steps` grid intervals. With `below_zero` the offset is
    never above 0, as in types that store it as a minimum to subtract.
    """
    lowest = x.min(axis=1)
    if below_zero:
        lowest = np.minimum(lowest, np.float32(0))
    y = x - lowest[:, None]  # sums of small numbers lose little
    unit = over(np.ones_like(lowest), y.max(axis=1))
    best = dot(y, y, w)
    scale, offset = np.zeros_like(lowest), np.zeros_like(lowest)
    for step in steps:
        q = rounded(y * (unit * np.float32(step))[:, None], 0, levels)
        found = _line(y, w, q, -lowest if below_zero else None)
        better = found[2] < best
        best = np.where(better, found[2], best)
        scale = np.where(better, found[0], scale)
        offset = np.where(better, found[1], offset)
    return scale, offset + lowest


def refit_affine(
    x: Floats, w: Weights, scale: Floats, offset: Floats, levels: int, *, below_zero: bool
) -> tuple[Floats, Floats]:
    """One round more: the q of a scale and offset, and the best scale and offset of those q."""
    y = x - offset[:, None]
    q = rounded(y * over(np.ones_like(scale), scale)[:, None], 0, levels)
    new_scale, shift, _ = _line(y, w, q, -offset if below_zero else None)
    return new_scale, offset + shift


def _line(y: Floats, w: Weights, q: Floats, ceiling: Floats | None) -> tuple[Floats, ...]:
    """Scale, offset and squared error of the line through (q, y); the offset is at most
    `ceiling`."""
    k = np.float32(y.shape[1])
    wq = q if w is None else q * w
    sw = np.full(len(y), k) if w is None else w.sum(axis=1)
    sq, sqq, sy, sqy = wq.sum(axis=1), dot(wq, q), total(y, w), dot(wq, y)
    determinant = sw * sqq - sq * sq
    # All q alike, but for rounding: any line will do, and that through the origin is stable.
    alike = determinant <= np.float32(1e-5) * sw * sqq
    determinant = np.where(alike, np.float32(1), determinant)
    scale = np.where(alike, over(sqy, sqq), (sw * sqy - sy * sq) / determinant)
    offset = np.where(alike, np.float32(0), (sqq * sy - sq * sqy) / determinant)
    if ceiling is not None:
        held = offset > ceiling
        offset = np.where(held, ceiling, offset)
        scale = np.where(held, over(sqy - ceiling * sq, sqq), scale)
    restored = q * scale[:, None] + offset[:, None]
    return scale, offset, squared_error(y, restored, w)
