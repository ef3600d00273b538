"""Dequantisation in plain NumPy: the definition of what a stored weight means.

Each `_<type>` function takes a structured array of n blocks and returns their values, float32
`[n, elements]` (or broadcastable groups of them). Products and sums are done in float32 in the
order the GGUF format's own description does them, so the result is exact to the bit. A scale that
is infinite or not a number gives what IEEE arithmetic gives; checking it is not this module's job.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pellucid.core.errors import UnsupportedError
from pellucid.quant.types import LAYOUTS, READABLE_TYPES, TensorType, byte_count, layout

Blocks = npt.NDArray[np.void]
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

# Elements dequantised at a time, so that the temporaries stay in cache and far below the tensor's
# size. Measured on two cores of a server: 2^15 to 2^18 alike (about 250 million Q4_1 elements a
# second), 2^20 at half that.
CHUNK_ELEMENTS = 1 << 16

# Non-linear 4-bit values of IQ4_NL and IQ4_XS.
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32
)
# E2M1 values times two (OCP Microscaling v1.0, section 5.3.3); the scale below is halved to match.
MXFP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)

_SHIFT_4 = np.array([0, 4], dtype=np.uint8)
_SHIFT_2 = np.array([0, 2, 4, 6], dtype=np.uint8)
_SHIFT_1 = np.arange(8, dtype=np.uint8)


def dequantize(raw: Bytes, type: TensorType, shape: tuple[int, ...]) -> Floats:
    """The float32 values of a tensor's bytes.

    `raw` is uint8 `[bytes]`; the result is float32 `shape` (rows first). F32 input that is aligned
    comes back as a view of `raw`, everything else as a new array.

    Raises `UnsupportedError` for a type that is listed but not readable, ValueError when `raw` does
    not have the size that `type` and `shape` imply.
    """
    if type not in READABLE_TYPES:
        raise UnsupportedError(unreadable(type))
    if raw.nbytes != byte_count(type, shape):
        raise ValueError(
            f"{type.name} of shape {shape} takes {byte_count(type, shape)} bytes, not {raw.nbytes}"
        )
    if type is TensorType.F32:
        values = raw.view("<f4")
        return (values if values.flags.aligned else values.copy()).reshape(shape)
    return _by_chunks(raw.view(LAYOUTS[type].dtype), type).reshape(shape)


def unreadable(type: TensorType) -> str:
    """Why a type cannot be read, and what can."""
    readable = " ".join(sorted(t.name for t in READABLE_TYPES))
    return f"type {type.name} is not implemented; use a file whose tensors are among: {readable}"


def _by_chunks(blocks: Blocks, type: TensorType) -> Floats:
    elements = layout(type).elements
    out = np.empty((len(blocks), elements), dtype=np.float32)
    step = CHUNK_ELEMENTS // elements
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(blocks), step):
            chunk = blocks[start : start + step]
            out[start : start + step] = _DEQUANTIZE[type](chunk).reshape(len(chunk), elements)
    return out


def _column(half: npt.NDArray[np.float16]) -> Floats:
    """float16 [n] -> float32 [n, 1], to scale the rows of [n, elements]."""
    return half.astype(np.float32)[:, None]


def _grouped(scale: Floats) -> Floats:
    """[n, groups] -> [n, groups, 1], to scale the rows of [n, groups, k]."""
    return scale[..., None]


def _bit_planes(packed: Bytes, shifts: Bytes, mask: int) -> Bytes:
    """[..., k] -> [..., len(shifts), k]: plane s holds `(packed >> shifts[s]) & mask`."""
    planes: Bytes = (packed[..., None, :] >> shifts[:, None]) & np.uint8(mask)
    return planes


def _nibbles(packed: Bytes) -> Bytes:
    """[n, k] -> [n, 2k]: all low nibbles, then all high ones."""
    return _bit_planes(packed, _SHIFT_4, 15).reshape(len(packed), -1)


def _high_bits(qh: Bytes) -> Bytes:
    """[n, 4] -> [n, 32]: bit i of the little-endian word, moved to the place worth 16."""
    return np.unpackbits(qh, axis=-1, bitorder="little") << np.uint8(4)


def _f16(b: Blocks) -> Floats:
    return b["x"].astype(np.float32)


def _bf16(b: Blocks) -> Floats:
    return (b["x"].astype(np.uint32) << np.uint32(16)).view(np.float32)


def _q4_0(b: Blocks) -> Floats:
    return _column(b["d"]) * (_nibbles(b["qs"]).astype(np.float32) - np.float32(8))


def _q4_1(b: Blocks) -> Floats:
    return _column(b["d"]) * _nibbles(b["qs"]).astype(np.float32) + _column(b["m"])


def _q5_0(b: Blocks) -> Floats:
    q = (_nibbles(b["qs"]) | _high_bits(b["qh"])).astype(np.float32) - np.float32(16)
    return _column(b["d"]) * q


def _q5_1(b: Blocks) -> Floats:
    q = (_nibbles(b["qs"]) | _high_bits(b["qh"])).astype(np.float32)
    return _column(b["d"]) * q + _column(b["m"])


def _q8_0(b: Blocks) -> Floats:
    return _column(b["d"]) * b["qs"].astype(np.float32)


def _q2_k(b: Blocks) -> Floats:
    """16 groups of 16: 2-bit values, a 4-bit scale and a 4-bit minimum for each group."""
    n = len(b)
    scale = _column(b["d"]) * (b["scales"] & 15).astype(np.float32)
    minimum = _column(b["dmin"]) * (b["scales"] >> 4).astype(np.float32)
    q = _bit_planes(b["qs"].reshape(n, 2, 32), _SHIFT_2, 3).reshape(n, 16, 16)
    return _grouped(scale) * q.astype(np.float32) - _grouped(minimum)


def _q3_k(b: Blocks) -> Floats:
    """16 groups of 16: 3-bit values whose third bit is inverted, a 6-bit signed scale each."""
    n = len(b)
    low = _nibbles(b["scales"][:, :8])
    high = _bit_planes(b["scales"][:, 8:], _SHIFT_2, 3).reshape(n, 16)
    scale = _column(b["d"]) * ((low | high << np.uint8(4)).astype(np.float32) - np.float32(32))
    q_low = _bit_planes(b["qs"].reshape(n, 2, 32), _SHIFT_2, 3).reshape(n, 16, 16)
    q_high = _bit_planes(b["hmask"], _SHIFT_1, 1).reshape(n, 16, 16)
    q = (q_low | q_high << np.uint8(2)).astype(np.float32) - np.float32(4)
    return _grouped(scale) * q


def _k_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """[n, 12] -> the 8 scales and 8 minima of Q4_K and Q5_K, 6 bits each, both [n, 8].

    The first four of each lie in the low 6 bits of bytes 0-3 and 4-7. The last four have their low
    nibbles in bytes 8-11 (scale below, minimum above) and their top 2 bits above the first four.
    """
    first, second, last = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (last & 15) | (first >> 6 << 4)], axis=1)
    minima = np.concatenate([second & 63, (last >> 4) | (second >> 6 << 4)], axis=1)
    return scales, minima


def _scaled_groups(b: Blocks, q: Bytes) -> Floats:
    """Q4_K and Q5_K: 8 groups of 32, each `d * scale * q - dmin * minimum`; `q` is [n, 8, 32]."""
    scales, minima = _k_scales(b["scales"])
    scale = _column(b["d"]) * scales.astype(np.float32)
    minimum = _column(b["dmin"]) * minima.astype(np.float32)
    return _grouped(scale) * q.astype(np.float32) - _grouped(minimum)


def _q4_k(b: Blocks) -> Floats:
    n = len(b)
    return _scaled_groups(b, _bit_planes(b["qs"].reshape(n, 4, 32), _SHIFT_4, 15).reshape(n, 8, 32))


def _q5_k(b: Blocks) -> Floats:
    n = len(b)
    low = _bit_planes(b["qs"].reshape(n, 4, 32), _SHIFT_4, 15).reshape(n, 8, 32)
    return _scaled_groups(b, low | _bit_planes(b["qh"], _SHIFT_1, 1) << np.uint8(4))


def _q6_k(b: Blocks) -> Floats:
    """16 groups of 16: 6-bit values around 32, an 8-bit signed scale each."""
    n = len(b)
    low = _bit_planes(b["ql"].reshape(n, 2, 64), _SHIFT_4, 15).reshape(n, 16, 16)
    high = _bit_planes(b["qh"].reshape(n, 2, 32), _SHIFT_2, 3).reshape(n, 16, 16)
    scale = _column(b["d"]) * b["scales"].astype(np.float32)
    return _grouped(scale) * ((low | high << np.uint8(4)).astype(np.float32) - np.float32(32))


def _iq4_nl(b: Blocks) -> Floats:
    return _column(b["d"]) * IQ4_VALUES[_nibbles(b["qs"])]


def _iq4_xs(b: Blocks) -> Floats:
    """8 groups of 32: the values of IQ4_NL, a 6-bit signed scale each."""
    n = len(b)
    low = _bit_planes(b["scales_l"][:, :, None], _SHIFT_4, 15).reshape(n, 8)
    high = (b["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.uint8)
    scale = _column(b["d"]) * ((low | high << np.uint8(4)).astype(np.float32) - np.float32(32))
    q = _bit_planes(b["qs"].reshape(n, 8, 16), _SHIFT_4, 15).reshape(n, 8, 32)
    return _grouped(scale) * IQ4_VALUES[q]


def _mxfp4(b: Blocks) -> Floats:
    return _half_e8m0(b["e"])[:, None] * MXFP4_VALUES[_nibbles(b["qs"])]


def _half_e8m0(exponent: Bytes) -> Floats:
    """2 ** (exponent - 128): an E8M0 scale halved; the two smallest are subnormal in float32."""
    e = exponent.astype(np.uint32)
    normal = (np.maximum(e, 1) - 1) << np.uint32(23)
    subnormal = np.uint32(0x00200000) << np.minimum(e, 1)
    return np.where(e < 2, subnormal, normal).astype(np.uint32).view(np.float32)


_DEQUANTIZE: dict[TensorType, Callable[[Blocks], Floats]] = {
    TensorType.F16: _f16,
    TensorType.BF16: _bf16,
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q2_K: _q2_k,
    TensorType.Q3_K: _q3_k,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
    TensorType.IQ4_NL: _iq4_nl,
    TensorType.IQ4_XS: _iq4_xs,
    TensorType.MXFP4: _mxfp4,
}
