"""Keys or values of one layer by pages, in each type of the cache: what its bytes mean.

f16 rounds each number, held at the ends of half precision. int8 and int4 cut a head's vector,
filled up with zeros to a multiple of 32 features, into blocks of 64 and at the end perhaps one of
32. A block is rotated by a Walsh-Hadamard transform, so that a feature far larger than the others
does not make the steps of all coarse (Chee et al. 2023, "QuIP"; Ashkboos et al. 2024, "QuaRot"),
and rounded:

    int8   x ~ scale c,           c = -127 .. 127, scale = max |x| / 127
    int4   x ~ scale (c - zero),  c = 0 .. 15, for each 32 features: 16 points over their range

int8's scale is in half precision. Scale and zero of int4 have 16 bits together: 4 zero in the lower
6, and a scale of 5 bits of exponent, from 2^-16 up, and 5 of fraction. They are rounded before the
codes are. All of it depends on the vector alone, in float32 operations of one order, so that every
backend writes the same codes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.costs import KV_BLOCK, KV_PADDING, in_blocks

Float32 = NDArray[np.float32]
Index = NDArray[np.int64]

_FLOATS: dict[str, np.dtype[np.floating]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
}
_HALF_MAX = np.float32(65504)
_ROTATE_BACK = np.float32(0.125)
_GRID = 32  # features that share scale and zero in int4
_NO_GRID = np.uint16(0xFFFF)  # of what holds no number
_SCALE_UNIT = np.float32(2.0**-113)  # its 10 bits are the upper end of a float's
_SCALE_BASE = 224 << 5
_SCALE_MOST = 991


class Pages(ABC):
    """Vectors of every head by page and slot."""

    in_blocks = False
    arrays: tuple[NDArray[np.generic], ...]  # each [pages, page_size, kv_heads, ...]

    @abstractmethod
    def store(
        self, pages: Index, slots: Index, x: Float32, feedback: Float32 | None = None
    ) -> None:
        """x [n, kv_heads, head_dim] at (page, slot) of each row; in int4 with errors fed on by
        `feedback` [kv_heads, dim, dim] (`key_prior`), if any."""

    @abstractmethod
    def read(self, pages: Index) -> Float32:
        """[len(pages), page_size, kv_heads, head_dim]."""

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for array in self.arrays:
            array[targets] = array[sources]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


def new_pages(type: str, shape: tuple[int, int, int], head_dim: int) -> Pages:
    """Empty pages of a type of `KV_DTYPES`. shape: (pages, page_size, kv_heads)."""
    if in_blocks(type):
        return _BlockPages(type, shape, head_dim)
    return _FloatPages(_FLOATS[type], shape, head_dim)


class _FloatPages(Pages):
    def __init__(self, dtype: np.dtype[np.floating], shape: tuple[int, ...], head_dim: int) -> None:
        self._values = np.zeros((*shape, head_dim), dtype)
        self.arrays = (self._values,)

    def store(
        self, pages: Index, slots: Index, x: Float32, feedback: Float32 | None = None
    ) -> None:
        if self._values.dtype == np.float16:
            x = np.clip(x, -_HALF_MAX, _HALF_MAX)
        self._values[pages, slots] = x

    def read(self, pages: Index) -> Float32:
        return self._values[pages].astype(np.float32, copy=False)


class _BlockPages(Pages):
    in_blocks = True

    def __init__(self, type: str, shape: tuple[int, ...], head_dim: int) -> None:
        self._bits = 4 if type == "int4" else 8
        self._head_dim = head_dim
        self._dim = -(-head_dim // KV_PADDING) * KV_PADDING
        self._codes = np.zeros((*shape, self._dim * self._bits // 8), np.uint8)
        n_blocks = -(-self._dim // KV_BLOCK)
        if self._bits == 4:  # a grid for each half of a block, though the last may be a half
            self._scales: NDArray[Any] = np.zeros((*shape, 2 * n_blocks), np.uint16)
        else:
            self._scales = np.zeros((*shape, n_blocks), np.float16)
        self.arrays = (self._codes, self._scales)

    def store(
        self, pages: Index, slots: Index, x: Float32, feedback: Float32 | None = None
    ) -> None:
        padded = np.zeros((*x.shape[:-1], self._dim), np.float32)
        padded[..., : self._head_dim] = np.clip(x, -_HALF_MAX, _HALF_MAX)
        for begin in range(0, self._dim, KV_BLOCK):
            block = padded[..., begin : begin + KV_BLOCK]
            block[...] = rotate(block)
        if self._bits == 8:
            self._store_int8(pages, slots, padded)
        else:
            self._store_int4(pages, slots, padded, feedback)

    def _store_int8(self, pages: Index, slots: Index, x: Float32) -> None:
        for b, begin in enumerate(range(0, self._dim, KV_BLOCK)):
            block = x[..., begin : begin + KV_BLOCK]
            largest = np.abs(block).max(axis=-1, keepdims=True)
            scale = _half(largest / np.float32(127))
            factor = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0).astype(np.float32)
            codes = np.rint(np.clip(block * factor, -127, 127))
            sound = ~np.isnan(largest)
            codes = np.where(sound, codes, 0).astype(np.int8).view(np.uint8)
            self._codes[pages, slots, :, begin : begin + codes.shape[-1]] = codes
            self._scales[pages, slots, :, b] = scale[..., 0]

    def _store_int4(self, pages: Index, slots: Index, x: Float32, feedback: Float32 | None) -> None:
        # A vector with what is no number feeds nothing on.
        sound = _all_finite(x)
        for b, begin in enumerate(range(0, self._dim, _GRID)):
            features = slice(begin, begin + _GRID)
            finite = _all_finite(x[..., features])
            bits = np.where(finite, _grids(x[..., features], finite), _NO_GRID)
            rows = None if feedback is None else feedback[:, features]
            codes = _rounded(x, begin, bits, finite, rows, sound)
            self._scales[pages, slots, :, b] = bits
            at = begin // 2
            self._codes[pages, slots, :, at : at + _GRID // 2] = codes[..., 0::2] | codes[
                ..., 1::2
            ] << np.uint8(4)

    def read(self, pages: Index) -> Float32:
        x = self._read_int8(pages) if self._bits == 8 else self._read_int4(pages)
        for begin in range(0, self._dim, KV_BLOCK):
            block = x[..., begin : begin + KV_BLOCK]
            block[...] = rotate_back(block)
        return np.ascontiguousarray(x[..., : self._head_dim])

    def _read_int8(self, pages: Index) -> Float32:
        codes = np.asarray(self._codes[pages].view(np.int8), np.float32)
        scales = self._scales[pages].astype(np.float32)
        return codes * np.repeat(scales, KV_BLOCK, axis=-1)[..., : self._dim]

    def _read_int4(self, pages: Index) -> Float32:
        packed = self._codes[pages]
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1)
        codes = nibbles.reshape(*packed.shape[:-1], -1).astype(np.float32)
        grids = np.asarray(self._scales[pages][..., : self._dim // _GRID], np.uint16)
        scale, zero = (np.repeat(part, _GRID, axis=-1) for part in _meaning(grids))
        return np.asarray(scale * (codes - zero), np.float32)


def _all_finite(x: Float32) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(x).all(axis=-1), np.bool_)


def _grids(x: Float32, finite: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """The grids whose 16 points lie over the numbers of [..., 32], 0 near or among them: [...]."""
    x = np.where(finite[..., None], x, np.float32(0))
    low, high = np.minimum(x.min(axis=-1), 0), np.maximum(x.max(axis=-1), 0)
    with np.errstate(over="ignore"):
        wanted = np.asarray((high - low) / np.float32(15) * (1 / _SCALE_UNIT), np.float32)
    place = (wanted.view(np.uint32).astype(np.int64) + (1 << 17) >> 18) - _SCALE_BASE
    scale_bits = np.clip(place, 0, _SCALE_MOST).astype(np.uint16)
    scale, _ = _meaning(scale_bits << np.uint16(6))
    middle = (low + high) * np.float32(0.5)
    fourths = np.float32(30) - np.float32(4) * middle / scale
    fourths = np.where(high > low, fourths, np.float32(28))  # of zeros, 0 is a point
    zero_bits = np.rint(np.clip(fourths, 0, 63)).astype(np.uint16)
    return np.asarray(scale_bits << np.uint16(6) | zero_bits, np.uint16)


def _meaning(bits: NDArray[np.uint16]) -> tuple[Float32, Float32]:
    """Scales and zeros of grids."""
    scale_bits = (bits >> np.uint16(6)).astype(np.uint32) + np.uint32(_SCALE_BASE) << np.uint32(18)
    zeros = (bits & np.uint16(63)).astype(np.float32) * np.float32(0.25)
    return scale_bits.astype(np.uint32).view(np.float32) * _SCALE_UNIT, zeros


def _rounded(
    x: Float32,
    begin: int,
    bits: NDArray[np.uint16],
    finite: NDArray[np.bool_],
    feedback: Float32 | None,
    sound: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Codes of the 32 features from `begin` on of rotated vectors x [n, kv_heads, dim], in order, 0
    where they are not `finite`; with `feedback` [kv_heads, 32, dim] the error of each is taken out
    of those after it, in place, where vectors are `sound`."""
    scale, zero = _meaning(np.where(finite, bits, np.uint16(0)))
    factor = 1 / scale
    codes = np.empty((*x.shape[:-1], _GRID), np.uint8)
    for j in range(_GRID):
        value = np.where(finite, x[..., begin + j], np.float32(0))
        code = np.where(finite, np.rint(np.clip(value * factor + zero, 0, 15)), np.float32(0))
        codes[..., j] = code
        if feedback is not None:
            error = np.where(sound, scale * (code - zero) - value, np.float32(0))
            after = slice(begin + j + 1, None)
            x[..., after] += error[..., None] * feedback[:, j, after]
    return codes


def _half(x: Float32) -> Float32:
    """Rounded to half precision, held at its ends."""
    return np.clip(x, -_HALF_MAX, _HALF_MAX).astype(np.float16).astype(np.float32)


def rotate(x: Float32) -> Float32:
    """H x / 8 for 64 features, H x / 4 for 32: [..., n] of either."""
    return _hadamard(x) * np.float32(0.125 if x.shape[-1] == KV_BLOCK else 0.25)


def rotate_back(x: Float32) -> Float32:
    """The inverse of `rotate`."""
    return _hadamard(x) * _ROTATE_BACK


def _hadamard(x: Float32) -> Float32:
    """Sylvester's matrix times each row, its butterflies from neighbours outwards."""
    n = x.shape[-1]
    distance = 1
    while distance < n:
        pairs = x.reshape(*x.shape[:-1], n // (2 * distance), 2, distance)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        distance *= 2
    return x
