"""Tensor types and the bytes of their blocks.

A quantised tensor is a run of blocks, each holding `elements` consecutive values of one row. Every
layout is a NumPy structured type with its size stated beside it, as the GGUF format fixes it
(ggml's block structures; MXFP4 is the OCP Microscaling specification v1.0). All fields are little
endian and packed without padding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

# Every super-block of the "K" types holds this many elements.
QK_K = 256
# Types that only safetensors files name start here; GGUF's own numbers stay far below.
FIRST_SAFETENSORS_ONLY = 1000


class TensorType(IntEnum):
    """How a tensor's elements are stored; the numbers are those of GGUF files.

    Q8_1 and Q8_K (9 and 15) are missing: they are for activations and no file holds them.
    """

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39

    BOOL = FIRST_SAFETENSORS_ONLY
    U8 = 1001
    U16 = 1002
    U32 = 1003
    U64 = 1004
    F8_E4M3 = 1005
    F8_E5M2 = 1006


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """`elements` values in one `dtype` record."""

    elements: int
    dtype: np.dtype[np.void]

    @property
    def nbytes(self) -> int:
        """Bytes of one block."""
        return self.dtype.itemsize

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.elements


def _block(elements: int, nbytes: int, *fields: tuple[str, npt.DTypeLike, int]) -> BlockLayout:
    """A layout of (name, dtype, count) fields; a wrong size stops the import."""
    dtype = np.dtype([(name, kind) if n == 1 else (name, kind, (n,)) for name, kind, n in fields])
    if dtype.itemsize != nbytes:
        raise AssertionError(f"block of {dtype} has {dtype.itemsize} bytes, not {nbytes}")
    return BlockLayout(elements, dtype)


def _opaque(elements: int, nbytes: int) -> BlockLayout:
    """A type whose size is known, so that a file holding it can be listed, but not its meaning."""
    return _block(elements, nbytes, ("bytes", "u1", nbytes))


# Types that `dequantize` reads: `d` scales, `m` and `dmin` minima, `qs` low bits, `qh` high bits.
LAYOUTS: dict[TensorType, BlockLayout] = {
    TensorType.F32: _block(1, 4, ("x", "<f4", 1)),
    TensorType.F16: _block(1, 2, ("x", "<f2", 1)),
    TensorType.BF16: _block(1, 2, ("x", "<u2", 1)),
    TensorType.Q4_0: _block(32, 18, ("d", "<f2", 1), ("qs", "u1", 16)),
    TensorType.Q4_1: _block(32, 20, ("d", "<f2", 1), ("m", "<f2", 1), ("qs", "u1", 16)),
    TensorType.Q5_0: _block(32, 22, ("d", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)),
    TensorType.Q5_1: _block(
        32, 24, ("d", "<f2", 1), ("m", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)
    ),
    TensorType.Q8_0: _block(32, 34, ("d", "<f2", 1), ("qs", "i1", 32)),
    TensorType.Q2_K: _block(
        QK_K, 84, ("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2", 1), ("dmin", "<f2", 1)
    ),
    TensorType.Q3_K: _block(
        QK_K, 110, ("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2", 1)
    ),
    TensorType.Q4_K: _block(
        QK_K, 144, ("d", "<f2", 1), ("dmin", "<f2", 1), ("scales", "u1", 12), ("qs", "u1", 128)
    ),
    TensorType.Q5_K: _block(
        QK_K,
        176,
        ("d", "<f2", 1),
        ("dmin", "<f2", 1),
        ("scales", "u1", 12),
        ("qh", "u1", 32),
        ("qs", "u1", 128),
    ),
    TensorType.Q6_K: _block(
        QK_K, 210, ("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2", 1)
    ),
    TensorType.IQ4_NL: _block(32, 18, ("d", "<f2", 1), ("qs", "u1", 16)),
    TensorType.IQ4_XS: _block(
        QK_K, 136, ("d", "<f2", 1), ("scales_h", "<u2", 1), ("scales_l", "u1", 4), ("qs", "u1", 128)
    ),
    TensorType.MXFP4: _block(32, 17, ("e", "u1", 1), ("qs", "u1", 16)),
}

# Types that can be listed and skipped, but not read.
LISTED_LAYOUTS: dict[TensorType, BlockLayout] = {
    TensorType.IQ2_XXS: _opaque(QK_K, 66),
    TensorType.IQ2_XS: _opaque(QK_K, 74),
    TensorType.IQ3_XXS: _opaque(QK_K, 98),
    TensorType.IQ1_S: _opaque(QK_K, 50),
    TensorType.IQ3_S: _opaque(QK_K, 110),
    TensorType.IQ2_S: _opaque(QK_K, 82),
    TensorType.IQ1_M: _opaque(QK_K, 56),
    TensorType.TQ1_0: _opaque(QK_K, 54),
    TensorType.TQ2_0: _opaque(QK_K, 66),
    TensorType.F64: _opaque(1, 8),
    TensorType.I8: _opaque(1, 1),
    TensorType.I16: _opaque(1, 2),
    TensorType.I32: _opaque(1, 4),
    TensorType.I64: _opaque(1, 8),
    TensorType.BOOL: _opaque(1, 1),
    TensorType.U8: _opaque(1, 1),
    TensorType.U16: _opaque(1, 2),
    TensorType.U32: _opaque(1, 4),
    TensorType.U64: _opaque(1, 8),
    TensorType.F8_E4M3: _opaque(1, 1),
    TensorType.F8_E5M2: _opaque(1, 1),
}

READABLE_TYPES = frozenset(LAYOUTS)


def layout(type: TensorType) -> BlockLayout:
    """The block layout of any type, readable or only listed."""
    return LAYOUTS.get(type) or LISTED_LAYOUTS[type]


def byte_count(type: TensorType, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor; rows lie one after another without padding.

    Raises ValueError when the row length, `shape[-1]`, is no multiple of the block's elements.
    """
    block = layout(type)
    row = shape[-1] if shape else 1
    if row % block.elements:
        raise ValueError(
            f"rows of {row} elements do not divide into {type.name} blocks of {block.elements}"
        )
    return math.prod(shape) // block.elements * block.nbytes
