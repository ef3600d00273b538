"""Keys or values of one layer by pages, in each type of the cache: what its bytes mean.

f16 rounds each number, held at the ends of half precision. int8 and int4 cut a head's vector,
filled up with zeros to a multiple of 32 features, into blocks of 64 and at the end perhaps one of
32. A block is rotated by a Walsh-Hadamard transform, so that a feature far larger than the others
does not make the steps of all coarse (Chee et al. 2023, "QuIP"; Ashkboos et al. 2024, "QuaRot"),
and rounded:

    int8   x ~ scale c,            c = -127 .. 127, scale = max |x| / 127
    int4   x ~ scale c + minimum,  c = 0 .. 15,     scale = (max x - minimum) / 15

Scales and minima are rounded to half precision before the codes are. All of it depends on the
vector alone, in float32 operations of one order, so that every backend writes the same codes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

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
        n_blocks = -(-self._dim // KV_BLOCK)
        self._codes = np.zeros((*shape, self._dim * self._bits // 8), np.uint8)
        self._scales = np.zeros((*shape, n_blocks), np.float16)
        minima = n_blocks if self._bits == 4 else 0
        self._minima = np.zeros((*shape, minima), np.float16)
        self.arrays = (self._codes, self._scales, self._minima)

    def store(
        self, pages: Index, slots: Index, x: Float32, feedback: Float32 | None = None
    ) -> None:
        padded = np.zeros((*x.shape[:-1], self._dim), np.float32)
        padded[..., : self._head_dim] = np.clip(x, -_HALF_MAX, _HALF_MAX)
        for begin in range(0, self._dim, KV_BLOCK):
            block = padded[..., begin : begin + KV_BLOCK]
            block[...] = rotate(block)
        # A vector with what is no number feeds nothing on.
        sound: NDArray[np.bool_] = np.asarray(np.isfinite(padded).all(axis=-1, keepdims=True))
        for b, begin in enumerate(range(0, self._dim, KV_BLOCK)):
            end = min(begin + KV_BLOCK, self._dim)
            codes, scales, minima = self._rounded(padded[..., begin:end])
            if self._bits == 4 and feedback is not None:
                codes = np.where(
                    sound, _fed(padded, begin, end, scales, minima, feedback, sound), codes
                ).astype(np.uint8)
            self._scales[pages, slots, :, b] = scales[..., 0]
            if self._bits == 4:
                self._minima[pages, slots, :, b] = minima[..., 0]
                codes = codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)
            at = begin * self._bits // 8
            self._codes[pages, slots, :, at : at + codes.shape[-1]] = codes

    def read(self, pages: Index) -> Float32:
        codes = self._codes[pages]
        if self._bits == 4:
            nibbles = np.stack([codes & 15, codes >> 4], axis=-1)
            whole = nibbles.reshape(*codes.shape[:-1], -1).astype(np.float32)
        else:
            whole = np.asarray(codes.view(np.int8), np.float32)
        scales, minima = self._scales[pages], self._minima[pages]
        x = np.empty(whole.shape, np.float32)
        for b, begin in enumerate(range(0, self._dim, KV_BLOCK)):
            block = whole[..., begin : begin + KV_BLOCK] * scales[..., b, None].astype(np.float32)
            if self._bits == 4:
                block = block + minima[..., b, None].astype(np.float32)
            x[..., begin : begin + KV_BLOCK] = rotate_back(block)
        return np.ascontiguousarray(x[..., : self._head_dim])

    def _rounded(self, x: Float32) -> tuple[NDArray[np.uint8], Float32, Float32]:
        """Codes, scales and minima of blocks [..., features]; what holds no number gets a scale
        that is none."""
        first, last = (0, 15) if self._bits == 4 else (-127, 127)
        high, low = x.max(axis=-1, keepdims=True), x.min(axis=-1, keepdims=True)
        if self._bits == 4:
            minima = _half(low)
            scales = _half(np.maximum(high - minima, 0) / np.float32(last))
        else:
            minima = np.zeros_like(low)
            scales = _half(np.maximum(high, -low) / np.float32(last))
        factor = np.where(scales > 0, 1 / np.where(scales > 0, scales, 1), 0).astype(np.float32)
        exact = (x - minima) * factor
        bad = np.isnan(high)
        codes = np.where(bad, 0, np.rint(np.clip(exact, first, last)))
        whole = codes.astype(np.int8).view(np.uint8)
        return whole, scales, np.where(bad, np.float32(0), minima)


def _fed(
    x: Float32,
    begin: int,
    end: int,
    scales: Float32,
    minima: Float32,
    feedback: Float32,
    sound: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Codes of features [begin, end) of rotated vectors x [n, kv_heads, dim], in order; the error
    of each is taken out of those after it, in place, where they are sound."""
    codes = np.empty((*x.shape[:-1], end - begin), np.uint8)
    scale, minimum = scales[..., 0], minima[..., 0]
    factor = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # of vectors that are not sound
        for j in range(begin, end):
            over = x[..., j] - minimum
            code = np.rint(np.clip(np.nan_to_num(over * factor), 0, 15))
            error = np.where(sound[..., 0], scale * code - over, np.float32(0))
            x[..., j + 1 :] += error[..., None] * feedback[:, j, j + 1 :]
            codes[..., j - begin] = code
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
