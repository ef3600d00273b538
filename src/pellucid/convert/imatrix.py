"""Importance matrices as files: what a text stirred in the inputs of every matrix.

Written as llama.cpp's GGUF form: for a matrix `name`, `name.in_sum2` holds the sums of its inputs'
squares, float32 [matrices, row], and `name.counts` how many were summed, float32 [matrices, 1].
Read are that and llama.cpp's older binary form: a count of entries, and for each its name, a number
of calls, and sums that were divided by the rows of one call (all whole numbers int32, little
endian, strings and sums preceded by their length).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, FormatError
from pellucid.formats import Checkpoint, open_checkpoint
from pellucid.formats.gguf import MAGIC
from pellucid.formats.gguf_write import Entry, Value, write_gguf
from pellucid.formats.limits import MAX_NAME_BYTES, MAX_TENSORS
from pellucid.formats.mapped import open_regular
from pellucid.formats.shown import shown
from pellucid.quant.types import TensorType

Floats = NDArray[np.float32]

_SUMS, _COUNTS = ".in_sum2", ".counts"
_MEND = "collect it again from the text (--calibrate)"


@dataclass(frozen=True, slots=True)
class Importance:
    """`sums` of the squares of the inputs of each matrix, float32 [row], by its name in GGUF, over
    `tokens` of `text`, read in windows of `window`."""

    sums: Mapping[str, Floats]
    tokens: int
    window: int
    text: str

    @property
    def squares(self) -> dict[str, Floats]:
        """Mean squares, as `read_imatrix` gives them back."""
        return {name: sums / np.float32(self.tokens) for name, sums in self.sums.items()}


def write_imatrix(path: Path, importance: Importance) -> None:
    """Write it in llama.cpp's GGUF form, whole or not at all. Raises as `write_gguf`."""
    metadata = {
        "general.type": Value("string", "imatrix"),
        "imatrix.datasets": Value("array of string", [importance.text]),
        "imatrix.chunk_count": Value("uint32", -(-importance.tokens // importance.window)),
        "imatrix.chunk_size": Value("uint32", importance.window),
    }
    arrays: dict[str, Floats] = {}
    for name, sums in importance.sums.items():
        arrays[name + _SUMS] = sums.reshape(1, -1)
        arrays[name + _COUNTS] = np.full((1, 1), importance.tokens, np.float32)
    entries = [Entry(name, array.shape, TensorType.F32) for name, array in arrays.items()]
    write_gguf(path, metadata, entries, lambda entry: [arrays[entry.name].tobytes()])


def read_imatrix(path: Path) -> dict[str, Floats]:
    """Mean squares by matrix, float32 [row]; those of stacked experts together.

    Raises `BadInput` for a file that cannot be read, `FormatError` for one that is damaged.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    found = _of_gguf(path) if is_gguf else _of_binary(path)
    for name, squares in found.items():
        if not (np.isfinite(squares).all() and (squares >= 0).all()):
            problem = "holds a square that is negative, infinite or no number"
            raise FormatError(path, shown(name), problem, _MEND)
    return found


def check_fits(
    path: Path, squares: Mapping[str, Floats], matrices: Iterable[tuple[str, tuple[int, ...]]]
) -> None:
    """Raises `BadInput` for an importance matrix of another model than the one with these."""
    known = dict(matrices)
    for name, values in squares.items():
        if name in known and known[name][-1] != len(values):
            raise BadInput(
                f"{path}: has {len(values)} inputs for {name}, and the model {known[name][-1]}: it "
                "is of another model"
            )
    if not any(name in known for name in squares):
        raise BadInput(f"{path}: names none of the model's matrices: it is of another model")


def _of_gguf(path: Path) -> dict[str, Floats]:
    with open_checkpoint(path) as checkpoint:
        names = [n.removesuffix(_SUMS) for n in checkpoint.tensors if n.endswith(_SUMS)]
        if not names:
            problem = "hold none that ends in .in_sum2: it is no importance matrix"
            raise FormatError(path, "tensors", problem, "give the file of llama-imatrix, or ours")
        return {name: _mean(checkpoint, name) for name in names}


def _mean(checkpoint: Checkpoint, name: str) -> Floats:
    sums = checkpoint.read(name + _SUMS)
    counts = checkpoint.read(name + _COUNTS).reshape(-1)
    sums = sums.reshape(-1, sums.shape[-1] if sums.ndim else 1)
    if len(counts) != len(sums):
        problem = f"has {len(counts)} counts for {len(sums)} matrices"
        raise FormatError(checkpoint.path, shown(name + _COUNTS), problem, _MEND)
    # Matrices that no token came to have sums of 0, and say nothing.
    total = np.float32(max(float(counts.sum()), 1.0))
    mean: Floats = sums.sum(axis=0) / total
    return mean


def _of_binary(path: Path) -> dict[str, Floats]:
    reader = _Reader(path)
    found: dict[str, Floats] = {}
    for _ in range(reader.count("entries", MAX_TENSORS)):
        name = reader.take("name", reader.count("length of a name", MAX_NAME_BYTES))
        calls = reader.count("calls", (1 << 31) - 1)
        n = reader.count("values", reader.left // 4)
        values = np.frombuffer(reader.take("values", 4 * n), "<f4").astype(np.float32)
        found[name.decode("utf-8", "replace")] = values / np.float32(max(calls, 1))
    return found


class _Reader:
    """A file from its beginning to its end, nothing taken that is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = path.read_bytes()
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, what: str, n: int) -> bytes:
        if n > self.left:
            field, problem = f"{what} (byte {self._at})", f"takes {n} bytes, and {self.left} follow"
            raise FormatError(self._path, field, problem, "it is no importance matrix, or damaged")
        self._at += n
        return self._data[self._at - n : self._at]

    def count(self, what: str, most: int) -> int:
        value: int = struct.unpack("<i", self.take(what, 4))[0]
        if not 0 < value <= most:
            field, problem = f"{what} (byte {self._at - 4})", f"{value} is not from 1 to {most}"
            raise FormatError(self._path, field, problem, "it is no importance matrix, or damaged")
        return value
