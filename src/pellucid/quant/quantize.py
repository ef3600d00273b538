"""Quantisation: float32 values to the bytes of a GGUF type, with the least squared error found.

The searches are in `small_blocks` and `super_blocks`, and native; `encode` has each type's grid.
This is the way in, which checks the values and goes through them in pieces.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, UnsupportedError
from pellucid.quant.encode import ENCODERS
from pellucid.quant.least_squares import Floats
from pellucid.quant.search import FASTEST, Search
from pellucid.quant.types import LAYOUTS, QK_K, TensorType, layout

# Elements searched at a time: the temporaries of a search stay in a core's cache.
CHUNK_ELEMENTS = 1 << 15
# No type reaches further than 65504 * 128 * 32; none has a value but 0 below the smallest half.
_LARGEST, _SMALLEST = 1e9, 2.0**-25
_TOO_LARGE = "holds a value that is too large for the type's half-precision scales"

QUANTIZED_TYPES = frozenset(ENCODERS)
WRITABLE_TYPES = QUANTIZED_TYPES | {TensorType.F32, TensorType.F16, TensorType.BF16}


def quantize(
    values: Floats,
    type: TensorType,
    importance: Floats | None = None,
    search: Search = FASTEST,
) -> NDArray[np.uint8]:
    """The bytes, uint8 [bytes], of float32 `values` [..., row] in `type`.

    `importance`, float32 [row], weighs the squared errors of a row's elements; without it those of
    large values weigh up to a few times as much in blocks of 32, and all alike in super-blocks.
    Values go to the nearest f16 or bf16 for those types, and with least squares to the others.

    Raises `UnsupportedError` for a type that is not written, `BadInput` for values that are not
    finite or too large for the type, ValueError for rows that do not divide into its blocks.
    """
    if type not in WRITABLE_TYPES:
        writable = " ".join(sorted(t.name for t in WRITABLE_TYPES))
        raise UnsupportedError(f"type {type.name} is not written here; use one of {writable}")
    elements, row = layout(type).elements, values.shape[-1]
    if row % elements:
        raise ValueError(f"rows of {row} do not divide into {type.name} blocks of {elements}")
    if not np.isfinite(values).all():
        raise BadInput("holds a value that is infinite or not a number")
    if type not in QUANTIZED_TYPES:
        return _narrowed(values, type)
    return _by_chunks(
        values.reshape(-1, elements), type, _by_block(importance, row, elements), search
    )


def _by_block(importance: Floats | None, row: int, elements: int) -> Floats | None:
    """[row] -> [blocks of a row, elements], none of them 0: an input that a text never stirred
    still has a weight worth keeping."""
    if importance is None:
        return None
    if importance.shape != (row,):
        raise ValueError(f"importance {importance.shape} for rows of {row}")
    mean = float(importance.mean(dtype=np.float64))
    if not mean > 0:
        return None
    scaled = (importance / np.float32(mean)).astype(np.float32)
    return np.maximum(scaled, np.float32(1e-4)).reshape(-1, elements)


def _by_chunks(
    x: Floats, type: TensorType, importance: Floats | None, search: Search
) -> NDArray[np.uint8]:
    blocks = np.empty(len(x), LAYOUTS[type].dtype)
    step = CHUNK_ELEMENTS // x.shape[1]
    for start in range(0, len(x), step):
        chunk = np.ascontiguousarray(_within_reach(x[start : start + step]), np.float32)
        w = _by_size(chunk) if importance is None and x.shape[1] < QK_K else None
        if importance is not None:
            w = importance[np.arange(start, start + len(chunk)) % len(importance)]
        with np.errstate(over="ignore", invalid="ignore"):
            found = ENCODERS[type](chunk, w, search)
        _check_scales(found)
        blocks[start : start + step] = found
    return blocks.view(np.uint8)


def _by_size(x: Floats) -> Floats:
    """Weights of squared errors in blocks of 32, where no text says better: |x| + rms of the block.

    A fit by plain squares cuts off the largest weights, which models lean on. Divergence of
    Qwen2.5-Coder-0.5B in Q4_0 over 300 tokens: 0.080 nats, by plain squares 0.101, by ggml 0.088.
    In super-blocks it costs more error than ggml's where there are outliers: not done there.
    """
    sizes = np.abs(x)
    sizes += np.sqrt(np.einsum("nk,nk->n", x, x) / np.float32(x.shape[1]))[:, None]
    mean = sizes.mean(axis=1, keepdims=True)
    weights: Floats = np.where(mean > 0, sizes / np.where(mean > 0, mean, 1), np.float32(1))
    return weights.astype(np.float32)


def _within_reach(x: Floats) -> Floats:
    """Blocks [n, k] whose squares are neither infinite nor 0; those too small for a half-precision
    scale are zeros, the nearest that any type has."""
    largest = np.abs(x).max(axis=1)
    if largest.max(initial=0) > _LARGEST:
        raise BadInput(_TOO_LARGE)
    small = largest < _SMALLEST
    return np.where(small[:, None], np.float32(0), x) if small.any() else x


def _check_scales(blocks: NDArray[np.void]) -> None:
    """Scales are half precision: they end at 65504."""
    for name in ("d", "m", "dmin"):
        if name in (blocks.dtype.names or ()) and not np.isfinite(blocks[name]).all():
            raise BadInput(_TOO_LARGE)


def _narrowed(values: Floats, type: TensorType) -> NDArray[np.uint8]:
    if type is TensorType.F32:
        return np.ascontiguousarray(values, "<f4").reshape(-1).view(np.uint8)
    if type is TensorType.F16:
        with np.errstate(over="ignore"):
            halves = np.ascontiguousarray(values).astype("<f2").reshape(-1)
        if not np.isfinite(halves).all():
            raise BadInput("holds a value beyond 65504, the largest of f16: use bf16")
        return halves.view(np.uint8)
    word = np.ascontiguousarray(values, "<f4").reshape(-1).view("<u4")
    # To the nearest, ties to even: add just under half, and one more where the kept part is odd.
    kept = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    if (kept & 0x7F80 == 0x7F80).any():
        raise BadInput("holds a value beyond the largest of bf16")
    return kept.astype("<u2").view(np.uint8)
