"""Each type's grid: where its search looks, and how what it finds is packed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pellucid.quant import pack
from pellucid.quant.least_squares import Floats, Weights
from pellucid.quant.pack import Blocks
from pellucid.quant.search import Search
from pellucid.quant.small_blocks import Signed, Steps
from pellucid.quant.types import TensorType


def _around(end: int, first: float, last: float, count: int) -> Steps:
    """Where the largest value is put, around the end of the grid: beyond it, the largest is cut
    off and all others are finer."""
    steps: list[float] = np.linspace(end + first, end + last, count, dtype=np.float32).tolist()
    return steps


_STEPS_4 = _around(8, -1.7, 1.1, 15)
_STEPS_5 = _around(16, -1.7, 1.7, 15)
_STEPS_8 = _around(127, -5.0, 0.49, 12)
# A block may have been on a grid of which it used a part only.
_AFFINE_4 = [13.0, *_around(15, -1.5, 2.0, 15)]
_AFFINE_5 = [28.0, 29.0, *_around(31, -1.5, 2.0, 15)]
_STEPS_6_K = _around(32, -1.5, 1.0, 9)
_AFFINE_4_K = [13.0, *_around(15, -1.5, 1.5, 13)]
_AFFINE_5_K = [28.0, 29.0, *_around(31, -1.5, 1.5, 13)]


def _q8_0(x: Floats, w: Weights, search: Search) -> Blocks:
    return pack.q8_0(*search.symmetric_blocks(x, w, -127, 127, 127, _STEPS_8))


def _q4_0(x: Floats, w: Weights, search: Search) -> Blocks:
    d, q = search.symmetric_blocks(x, w, -8, 7, 8, _STEPS_4)
    return pack.four_bits(TensorType.Q4_0, d, None, _from_zero(q, 8))


def _q5_0(x: Floats, w: Weights, search: Search) -> Blocks:
    d, q = search.symmetric_blocks(x, w, -16, 15, 16, _STEPS_5)
    return pack.five_bits(TensorType.Q5_0, d, None, _from_zero(q, 16))


def _q4_1(x: Floats, w: Weights, search: Search) -> Blocks:
    return pack.four_bits(TensorType.Q4_1, *search.affine_blocks(x, w, 15, _AFFINE_4))


def _q5_1(x: Floats, w: Weights, search: Search) -> Blocks:
    return pack.five_bits(TensorType.Q5_1, *search.affine_blocks(x, w, 31, _AFFINE_5))


def _q4_k(x: Floats, w: Weights, search: Search) -> Blocks:
    return pack.q4_k(*search.affine_supers(x, w, 15, _AFFINE_4_K))


def _q5_k(x: Floats, w: Weights, search: Search) -> Blocks:
    return pack.q5_k(*search.affine_supers(x, w, 31, _AFFINE_5_K))


def _q6_k(x: Floats, w: Weights, search: Search) -> Blocks:
    d, scales, q = search.symmetric_supers(x, w, _STEPS_6_K)
    return pack.q6_k(d, scales, _from_zero(q, 32))


def _from_zero(q: Signed, zero: int) -> pack.Bytes:
    return (q + np.int8(zero)).astype(np.uint8)


# x, float32 [n, elements], and weights of its squared errors or None -> n blocks.
ENCODERS: dict[TensorType, Callable[[Floats, Weights, Search], Blocks]] = {
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
}
