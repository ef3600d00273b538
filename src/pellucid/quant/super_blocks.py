"""Searches for the scales of super-blocks of 256, in NumPy: the readable twin of `native/quant`.

A super-block's groups have scales (and minima) which are themselves whole numbers, times one or two
half-precision numbers. After each group was fitted alone, the whole numbers' neighbours are tried
against the error itself and the half-precision numbers refitted to all groups together.
"""

from __future__ import annotations

import numpy as np

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
from pellucid.quant.small_blocks import Halves, Signed, Steps, Unsigned
from pellucid.quant.types import QK_K

_GROUP_ROUNDS = 2  # of refitting a group alone
_ROUNDS = 2  # of trying neighbours and refitting the super-block
_NEIGHBOURS = (-1, 0, 1)


def symmetric_supers(x: Floats, w: Weights, steps: Steps) -> tuple[Halves, Signed, Signed]:
    """x [n, 256] = d * scales * q in 16 groups of 16.

    Gives d, float16 [n], scales, int8 [n, 16], and q, int8 [n, 256], from -32 to 31.
    """
    groups, weights = _groups(x, w, 16)
    found = symmetric(groups, weights, -32, 31, steps)
    for _ in range(_GROUP_ROUNDS):
        found = refit_symmetric(groups, weights, found, -32, 31)
    by_block = found.reshape(-1, 16)
    largest = np.take_along_axis(by_block, np.abs(by_block).argmax(axis=1)[:, None], axis=1)
    d = _half(largest[:, 0] / np.float32(-128))
    whole = rounded(over(by_block, np.broadcast_to(d[:, None], by_block.shape)), -128, 127)
    best = _symmetric_error(groups, weights, d, whole)
    for _ in range(_ROUNDS):
        whole, best = _better_scales(groups, weights, d, whole, best)
        d, best = _refit_d(groups, weights, d, whole, best)
    q = _symmetric_grid(groups, d, whole)
    return d.astype(np.float16), whole.astype(np.int8), q.reshape(-1, QK_K).astype(np.int8)


def _groups(x: Floats, w: Weights, size: int) -> tuple[Floats, Weights]:
    return x.reshape(-1, size), None if w is None else w.reshape(-1, size)


def _half(a: Floats) -> Floats:
    """Rounded to what half precision can hold."""
    return a.astype(np.float16).astype(np.float32)


def _symmetric_grid(groups: Floats, d: Floats, whole: Floats) -> Floats:
    step = (d[:, None] * whole).reshape(-1, 1)
    return rounded(groups * over(np.ones_like(step), step), -32, 31)


def _symmetric_error(groups: Floats, w: Weights, d: Floats, whole: Floats) -> Floats:
    """Of each group, [n, 16]."""
    step = (d[:, None] * whole).reshape(-1, 1)
    q = _symmetric_grid(groups, d, whole)
    return squared_error(groups, q * step, w).reshape(whole.shape)


def _better_scales(
    groups: Floats, w: Weights, d: Floats, whole: Floats, best: Floats
) -> tuple[Floats, Floats]:
    found = whole
    for step in (-1, 1):
        tried = np.clip(whole + np.float32(step), -128, 127)
        error = _symmetric_error(groups, w, d, tried)
        found, best = np.where(error < best, tried, found), np.minimum(error, best)
    return found, best


def _refit_d(
    groups: Floats, w: Weights, d: Floats, whole: Floats, best: Floats
) -> tuple[Floats, Floats]:
    """The d that fits all groups of a super-block, kept where it is better."""
    q = _symmetric_grid(groups, d, whole) * whole.reshape(-1, 1)
    xq, qq = dot(groups, q, w).reshape(whole.shape), dot(q, q, w).reshape(whole.shape)
    tried = _half(over(xq.sum(axis=1), qq.sum(axis=1)))
    error = _symmetric_error(groups, w, tried, whole)
    better = error.sum(axis=1) < best.sum(axis=1)
    return np.where(better, tried, d), np.where(better[:, None], error, best)


class _Minima:
    """Super-blocks of 8 groups of 32: `d * scales * q - dmin * minima`, and their errors.

    `d` and `dmin` are float32 [n] that half precision holds, `scales` and `minima` whole numbers
    from 0 to 63, float32 [n, 8]; `errors` are the groups' squared errors [n, 8].
    """

    def __init__(self, x: Floats, w: Weights, levels: int, steps: Steps) -> None:
        self.levels = levels
        self.groups, self.w = _groups(x, w, 32)
        scale, offset = affine(self.groups, self.w, levels, steps, below_zero=True)
        for _ in range(_GROUP_ROUNDS):
            scale, offset = refit_affine(
                self.groups, self.w, scale, offset, self.levels, below_zero=True
            )
        scale, minimum = np.maximum(scale, 0).reshape(-1, 8), -offset.reshape(-1, 8)
        self.d, self.scales = _six_bits(scale)
        self.dmin, self.minima = _six_bits(minimum)
        self.errors = self._errors(self.d, self.dmin, self.scales, self.minima)

    def grid(self, d: Floats, dmin: Floats, scales: Floats, minima: Floats) -> Floats:
        """The nearest q [groups, 32]."""
        step = (d[:, None] * scales).reshape(-1, 1)
        lifted = self.groups + (dmin[:, None] * minima).reshape(-1, 1)
        np.multiply(lifted, over(np.ones_like(step), step), out=lifted)
        return rounded(lifted, 0, self.levels)

    def _errors(self, d: Floats, dmin: Floats, scales: Floats, minima: Floats) -> Floats:
        restored = self.grid(d, dmin, scales, minima)
        np.multiply(restored, (d[:, None] * scales).reshape(-1, 1), out=restored)
        np.subtract(restored, (dmin[:, None] * minima).reshape(-1, 1), out=restored)
        return squared_error(self.groups, restored, self.w).reshape(scales.shape)

    def try_neighbours(self) -> None:
        """Scales and minima one less and one more, in every combination."""
        scales, minima = self.scales, self.minima
        for up in _NEIGHBOURS:
            for down in _NEIGHBOURS:
                if up == down == 0:
                    continue
                tried = np.clip(scales + np.float32(up), 0, 63)
                tried_minima = np.clip(minima + np.float32(down), 0, 63)
                errors = self._errors(self.d, self.dmin, tried, tried_minima)
                better = errors < self.errors
                self.scales = np.where(better, tried, self.scales)
                self.minima = np.where(better, tried_minima, self.minima)
                self.errors = np.minimum(errors, self.errors)

    def refit(self) -> None:
        """The d and dmin that fit all groups of a super-block, kept where they are better."""
        q = self.grid(self.d, self.dmin, self.scales, self.minima) * self.scales.reshape(-1, 1)
        m = np.broadcast_to(-self.minima.reshape(-1, 1), q.shape)
        qq, qm, mm, xq, xm = (
            dot(a, b, self.w).reshape(self.scales.shape).sum(axis=1)
            for a, b in ((q, q), (q, m), (m, m), (self.groups, q), (self.groups, m))
        )
        determinant = qq * mm - qm * qm
        alone = np.abs(determinant) <= np.float32(1e-6) * qq * mm  # no minima, or no scales
        d = np.where(alone, over(xq, qq), over(xq * mm - xm * qm, determinant))
        dmin = np.where(alone, self.dmin, over(xm * qq - xq * qm, determinant))
        d, dmin = _half(d), _half(dmin)
        errors = self._errors(d, dmin, self.scales, self.minima)
        better = errors.sum(axis=1) < self.errors.sum(axis=1)
        self.d, self.dmin = np.where(better, d, self.d), np.where(better, dmin, self.dmin)
        self.errors = np.where(better[:, None], errors, self.errors)

    def drop_what_zeros_beat(self) -> None:
        """Minima of tiny values are too coarse, where d is below half precision."""
        zeros = dot(self.groups, self.groups, self.w).reshape(self.scales.shape).sum(axis=1)
        beaten = zeros < self.errors.sum(axis=1)
        self.d = np.where(beaten, np.float32(0), self.d)
        self.dmin = np.where(beaten, np.float32(0), self.dmin)


def _six_bits(values: Floats) -> tuple[Floats, Floats]:
    """[n, 8] not negative -> a half-precision unit [n] and whole numbers from 0 to 63 of it."""
    unit = _half(values.max(axis=1) / np.float32(63))
    return unit, rounded(over(values, np.broadcast_to(unit[:, None], values.shape)), 0, 63)


def affine_supers(
    x: Floats, w: Weights, levels: int, steps: Steps
) -> tuple[Halves, Halves, Unsigned, Unsigned, Unsigned]:
    """x [n, 256] = d * scales * q - dmin * minima in 8 groups of 32.

    Gives d and dmin, float16 [n], scales and minima, uint8 [n, 8], from 0 to 63, and q, uint8
    [n, 256], from 0 to `levels`.
    """
    fit = _Minima(x, w, levels, steps)
    for _ in range(_ROUNDS):
        fit.try_neighbours()
        fit.refit()
    fit.drop_what_zeros_beat()
    q = fit.grid(fit.d, fit.dmin, fit.scales, fit.minima)
    d, dmin = fit.d.astype(np.float16), fit.dmin.astype(np.float16)
    scales, minima, whole = (a.astype(np.uint8) for a in (fit.scales, fit.minima, q))
    return d, dmin, scales, minima, whole.reshape(-1, QK_K)
