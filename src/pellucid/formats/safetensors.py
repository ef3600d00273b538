"""The safetensors format (specification: huggingface/safetensors, README, "Format").

Layout: the header's length (8 bytes), the header (a JSON object: tensor name -> dtype, shape and
data offsets, and perhaps `__metadata__`), the tensors' bytes.

Invariants of a header that parsed:
1. Names are unique; every dtype is known; dtype times shape is the size of the tensor's range.
2. The ranges cover the data without overlap and without holes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.formats import limits
from pellucid.formats.mapped import MappedFile
from pellucid.formats.shown import shown
from pellucid.formats.strict_json import parse_json_object
from pellucid.formats.tensors import TensorInfo, check_no_overlap, checked_byte_count
from pellucid.quant.types import TensorType

DTYPES = {
    "F32": TensorType.F32,
    "F16": TensorType.F16,
    "BF16": TensorType.BF16,
    "F64": TensorType.F64,
    "I8": TensorType.I8,
    "I16": TensorType.I16,
    "I32": TensorType.I32,
    "I64": TensorType.I64,
    "U8": TensorType.U8,
    "U16": TensorType.U16,
    "U32": TensorType.U32,
    "U64": TensorType.U64,
    "BOOL": TensorType.BOOL,
    "F8_E4M3": TensorType.F8_E4M3,
    "F8_E5M2": TensorType.F8_E5M2,
}


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """`notes` is the header's own `__metadata__`."""

    tensors: dict[str, TensorInfo]
    notes: dict[str, str]


def read_header(file: MappedFile, file_number: int = 0) -> SafetensorsHeader:
    """Parse everything but the tensors' bytes; tensors get `file_number` as their file.

    Raises `FormatError` for a file that breaks the format, `UnsupportedError` for an unknown dtype.
    """
    length = _header_length(file)
    header = parse_json_object(file.path, "header", file.buffer[8 : 8 + length])
    notes = _notes(file, header.pop("__metadata__", {}))
    if len(header) > limits.MAX_TENSORS:
        problem = f"lists {len(header)} tensors, at most {limits.MAX_TENSORS} are allowed"
        raise FormatError(file.path, "header", problem)
    data_start = 8 + length
    tensors = {
        name: _tensor(file, name, entry, data_start, file_number) for name, entry in header.items()
    }
    check_no_overlap(file.path, tensors.values())
    _check_no_holes(file, tensors.values(), data_start)
    return SafetensorsHeader(tensors, notes)


def _header_length(file: MappedFile) -> int:
    field = "header length (byte 0)"
    if file.size < 8:
        raise FormatError(file.path, field, f"needs 8 bytes, the file has {file.size}")
    length = int.from_bytes(file.buffer[:8], "little")
    if length > limits.MAX_HEADER_BYTES:
        problem = f"is {length}, at most {limits.MAX_HEADER_BYTES} are allowed"
        raise FormatError(file.path, field, problem)
    if length > file.size - 8:
        problem = f"is {length}, the file has only {file.size - 8} bytes after it"
        raise FormatError(file.path, field, problem)
    if file.buffer[8:9] != b"{":
        raise FormatError(file.path, "header (byte 8)", "does not begin with '{'")
    return length


def _notes(file: MappedFile, notes: Any) -> dict[str, str]:
    if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
        raise FormatError(file.path, "header: __metadata__", "must map strings to strings")
    return notes


def _tensor(
    file: MappedFile, name: str, entry: Any, data_start: int, file_number: int
) -> TensorInfo:
    field = f"tensor {shown(name)}"
    if not name:
        raise FormatError(file.path, field, "has an empty name")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(file.path, field, "must have dtype, shape and data_offsets, nothing else")
    type = _type(file, field, entry["dtype"])
    shape = _naturals(file, f"{field}: shape", entry["shape"], limits.MAX_RANK)
    begin, end = _range(file, f"{field}: data_offsets", entry["data_offsets"], data_start)
    nbytes = checked_byte_count(file.path, field, type, shape)
    if nbytes != end - begin:
        problem = (
            f"{type.name} of shape {list(shape)} takes {nbytes} bytes, its range {end - begin}"
        )
        raise FormatError(file.path, f"{field} (byte {data_start + begin})", problem)
    return TensorInfo(name, shape, type, data_start + begin, nbytes, file_number)


def _type(file: MappedFile, field: str, dtype: Any) -> TensorType:
    if not isinstance(dtype, str):
        raise FormatError(file.path, f"{field}: dtype", "must be a string")
    if dtype not in DTYPES:
        raise UnsupportedError(
            f"{file.path}: {field}: dtype {shown(dtype)} is unknown; convert it to one of "
            f"{' '.join(DTYPES)}"
        )
    return DTYPES[dtype]


def _naturals(file: MappedFile, field: str, value: Any, limit: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > limit:
        raise FormatError(file.path, field, f"must be a list of at most {limit} numbers")
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in value):
        raise FormatError(file.path, field, "must hold whole numbers from 0 to 2^63 - 1")
    return tuple(value)


def _range(file: MappedFile, field: str, value: Any, data_start: int) -> tuple[int, int]:
    offsets = _naturals(file, field, value, 2)
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(file.path, field, f"must be [begin, end], not {shown(list(offsets))}")
    if data_start + offsets[1] > file.size:
        problem = f"ends at byte {data_start + offsets[1]}, the file has {file.size} bytes"
        raise FormatError(
            file.path, field, problem, "the file is cut short or damaged: fetch it again"
        )
    return offsets[0], offsets[1]


def _check_no_holes(file: MappedFile, tensors: Iterable[TensorInfo], data_start: int) -> None:
    """The format leaves no byte unclaimed, so that nothing can hide in a file."""
    position = data_start
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.stop)):
        if tensor.offset != position:
            gap = tensor.offset - position
            problem = (
                f"{gap} bytes before it belong to no tensor" if gap > 0 else "overlaps another"
            )
            field = f"tensor {shown(tensor.name)} (byte {tensor.offset})"
            raise FormatError(file.path, field, problem)
        position = tensor.stop
    if position != file.size:
        problem = f"{file.size - position} bytes after the last tensor belong to no tensor"
        raise FormatError(file.path, f"data (byte {position})", problem)
