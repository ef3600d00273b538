"""What a GGUF file is written from: metadata, and tensors that are read piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import UnsupportedError
from pellucid.formats import Checkpoint, TensorInfo
from pellucid.formats.gguf_write import Value
from pellucid.quant.dequantize import dequantize, unreadable
from pellucid.quant.types import READABLE_TYPES, TensorType, byte_count

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

# Values in memory at a time, per thread: 4 MB as float32.
PIECE_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor as GGUF names it.

    `pieces` gives its values in order, float32 [rows, row], a bounded number at a time; `stored`
    its bytes as they lie in the source, which are of `type`. `release` gives the memory back.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    pieces: Callable[[], Iterator[Floats]]
    stored: Callable[[], Bytes]
    release: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Source:
    """`metadata` in the order it will be written. `tied`: the embedding table is the head too."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Sequence[SourceTensor]
    n_layers: int
    tied: bool


def rows_of(raw: Bytes, type: TensorType, shape: tuple[int, ...]) -> Iterator[Floats]:
    """The values of a tensor's bytes, float32 [rows, row], `PIECE_ELEMENTS` at a time."""
    row = shape[-1]
    row_bytes = byte_count(type, (row,))
    n_rows = raw.nbytes // row_bytes
    step = max(1, PIECE_ELEMENTS // row)
    for first in range(0, n_rows, step):
        n = min(step, n_rows - first)
        yield dequantize(raw[first * row_bytes : (first + n) * row_bytes], type, (n, row))


def gguf_source(checkpoint: Checkpoint) -> Source:
    """A GGUF file's own metadata and tensors, in its order, whatever its architecture."""
    metadata = {
        key: Value(checkpoint.metadata.type_of(key), checkpoint.metadata[key])
        for key in checkpoint.metadata
        if not key.startswith(("split.", "quantize."))
    }
    architecture = checkpoint.metadata.text("general.architecture")
    n_layers = checkpoint.metadata.integer(f"{architecture}.block_count", 0)
    tensors = [_gguf_tensor(checkpoint, info) for info in checkpoint.tensors.values()]
    tied = "output.weight" not in checkpoint.tensors
    return Source(checkpoint.path, metadata, tensors, n_layers, tied)


def _gguf_tensor(checkpoint: Checkpoint, info: TensorInfo) -> SourceTensor:
    def pieces() -> Iterator[Floats]:
        if info.type not in READABLE_TYPES:
            raise UnsupportedError(
                f"{checkpoint.path}: tensor {info.name}: {unreadable(info.type)}"
            )
        return rows_of(checkpoint.raw(info.name), info.type, info.shape)

    return SourceTensor(
        info.name,
        info.shape,
        info.type,
        pieces,
        lambda: checkpoint.raw(info.name),
        lambda: checkpoint.release(info.name),
    )
