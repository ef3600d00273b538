"""Where a tensor lies in its file, and the checks that every format shares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pellucid.core.errors import FormatError
from pellucid.formats.limits import MAX_ELEMENTS
from pellucid.formats.shown import shown
from pellucid.quant.types import TensorType, byte_count


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a checkpoint.

    `shape` is in NumPy order: rows first, so a GGUF file's dimensions reversed. `offset` and
    `nbytes` are bytes from the start of file number `file` of the checkpoint.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    nbytes: int
    file: int = 0

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.offset + self.nbytes


def checked_byte_count(path: Path, field: str, type: TensorType, shape: tuple[int, ...]) -> int:
    """Bytes that a type and shape imply; `FormatError` when they are absurd or do not fit."""
    if math.prod(max(dim, 1) for dim in shape) > MAX_ELEMENTS:
        raise FormatError(path, field, f"shape {list(shape)} has more than 2^48 elements")
    try:
        return byte_count(type, shape)
    except ValueError as error:
        raise FormatError(path, field, str(error)) from error


def check_no_overlap(path: Path, tensors: Iterable[TensorInfo]) -> None:
    """`FormatError` naming two tensors that share bytes."""
    in_order = sorted((t for t in tensors if t.nbytes), key=lambda t: t.offset)
    for before, after in pairwise(in_order):
        if after.offset < before.stop:
            raise FormatError(
                path,
                f"tensor {shown(after.name)} (byte {after.offset})",
                f"overlaps tensor {shown(before.name)}, which ends at byte {before.stop}",
            )
