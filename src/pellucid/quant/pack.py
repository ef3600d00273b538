"""Whole numbers and scales into the bytes of blocks: `dequantize` reversed, field by field.

Each function fills a structured array of n blocks (`types.LAYOUTS`). `q` are the numbers as they
are stored, not negative, uint8 [n, elements] (int8 for Q8_0).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pellucid.quant.types import LAYOUTS, TensorType

Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]
Blocks = NDArray[np.void]


def _blocks(type: TensorType, n: int) -> Blocks:
    return np.empty(n, LAYOUTS[type].dtype)


def _nibbles(q: Bytes) -> Bytes:
    """[..., 2, k] -> [..., k]: the first of each two below, the second above."""
    packed: Bytes = (q[..., 0, :] & np.uint8(15)) | (q[..., 1, :] << np.uint8(4))
    return packed


def q8_0(d: Halves, q: NDArray[np.int8]) -> Blocks:
    blocks = _blocks(TensorType.Q8_0, len(d))
    blocks["d"], blocks["qs"] = d, q
    return blocks


def four_bits(type: TensorType, d: Halves, m: Halves | None, q: Bytes) -> Blocks:
    """Q4_0 (no `m`) and Q4_1."""
    blocks = _blocks(type, len(d))
    blocks["d"] = d
    if m is not None:
        blocks["m"] = m
    blocks["qs"] = _nibbles(q.reshape(-1, 2, 16))
    return blocks


def five_bits(type: TensorType, d: Halves, m: Halves | None, q: Bytes) -> Blocks:
    """Q5_0 (no `m`) and Q5_1: as four bits, and a word of fifth bits."""
    blocks = _blocks(type, len(d))
    blocks["d"] = d
    if m is not None:
        blocks["m"] = m
    blocks["qs"] = _nibbles(_low(q).reshape(-1, 2, 16))
    blocks["qh"] = np.packbits(q >> 4, axis=-1, bitorder="little")
    return blocks


def k_scales(scales: Bytes, minima: Bytes) -> Bytes:
    """8 scales and 8 minima of 6 bits, [n, 8] each -> [n, 12]; `dequantize._k_scales` reversed."""
    first = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    second = minima[:, :4] | (minima[:, 4:] >> 4 << 6)
    last = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    return np.concatenate([first, second, last], axis=1)


def q4_k(d: Halves, dmin: Halves, scales: Bytes, minima: Bytes, q: Bytes) -> Blocks:
    blocks = _blocks(TensorType.Q4_K, len(d))
    blocks["d"], blocks["dmin"], blocks["scales"] = d, dmin, k_scales(scales, minima)
    blocks["qs"] = _nibbles(q.reshape(-1, 4, 2, 32)).reshape(-1, 128)
    return blocks


def q5_k(d: Halves, dmin: Halves, scales: Bytes, minima: Bytes, q: Bytes) -> Blocks:
    blocks = _blocks(TensorType.Q5_K, len(d))
    blocks["d"], blocks["dmin"], blocks["scales"] = d, dmin, k_scales(scales, minima)
    blocks["qs"] = _nibbles(_low(q).reshape(-1, 4, 2, 32)).reshape(-1, 128)
    blocks["qh"] = _planes(_high(q).reshape(-1, 8, 32), 1)
    return blocks


def q6_k(d: Halves, scales: NDArray[np.int8], q: Bytes) -> Blocks:
    blocks = _blocks(TensorType.Q6_K, len(d))
    blocks["d"], blocks["scales"] = d, scales
    blocks["ql"] = _nibbles(_low(q).reshape(-1, 2, 2, 64)).reshape(-1, 128)
    blocks["qh"] = _planes(_high(q).reshape(-1, 4, 32), 2).reshape(-1, 64)
    return blocks


def _low(q: Bytes) -> Bytes:
    return q & np.uint8(15)


def _high(q: Bytes) -> Bytes:
    return q >> np.uint8(4)


def _planes(q: Bytes, bits: int) -> Bytes:
    """[n, planes, k] -> [n, k]: plane i in the bits from i * bits on."""
    shifts = (np.arange(q.shape[1]) * bits).astype(np.uint8)
    packed: Bytes = np.bitwise_or.reduce(q << shifts[:, None], axis=1)
    return packed
