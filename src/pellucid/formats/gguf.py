"""GGUF version 2 and 3, little endian (the format's specification: ggml, docs/gguf.md).

Layout: magic, version, tensor count, key count; the keys and values; the tensors' names,
dimensions, types and offsets; padding to `general.alignment`; the tensors' bytes.

Invariants of a header that parsed:
1. Every key and tensor name is unique, valid UTF-8 and not empty.
2. Every tensor lies within the file, at a multiple of the alignment, and shares no byte with
   another.
3. Nothing was allocated that was not first compared with the bytes left in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.formats import limits
from pellucid.formats.mapped import MappedFile
from pellucid.formats.metadata import Metadata
from pellucid.formats.shown import shown
from pellucid.formats.string_array import StringArrayError, read_strings
from pellucid.formats.tensors import TensorInfo, check_no_overlap, checked_byte_count
from pellucid.quant.types import FIRST_SAFETENSORS_ONLY, TensorType

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
# The shortest key/value pair: length, one byte of key, type, one byte of value; the shortest
# tensor: name length, one byte of name, dimension count, type, offset.
_MIN_KEY_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8


class ValueType(IntEnum):
    """The types of metadata values."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_SCALARS = {
    ValueType.UINT8: struct.Struct("<B"),
    ValueType.INT8: struct.Struct("<b"),
    ValueType.UINT16: struct.Struct("<H"),
    ValueType.INT16: struct.Struct("<h"),
    ValueType.UINT32: struct.Struct("<I"),
    ValueType.INT32: struct.Struct("<i"),
    ValueType.FLOAT32: struct.Struct("<f"),
    ValueType.BOOL: struct.Struct("<B"),
    ValueType.UINT64: struct.Struct("<Q"),
    ValueType.INT64: struct.Struct("<q"),
    ValueType.FLOAT64: struct.Struct("<d"),
}
_TENSOR_TYPES = {int(t): t for t in TensorType if t < FIRST_SAFETENSORS_ONLY}
_U32, _U64 = _SCALARS[ValueType.UINT32], _SCALARS[ValueType.UINT64]


@dataclass(frozen=True, slots=True)
class GgufHeader:
    version: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]
    data_start: int


def read_header(file: MappedFile) -> GgufHeader:
    """Parse everything but the tensors' bytes.

    Raises `FormatError` for a file that breaks the format, `UnsupportedError` for version 1,
    big-endian files and nested arrays.
    """
    reader = _Reader(file)
    version = _read_version(reader)
    n_tensors = reader.count("tensor count", limits.MAX_TENSORS, _MIN_TENSOR_BYTES)
    n_keys = reader.count("metadata key count", limits.MAX_KEYS, _MIN_KEY_BYTES)
    metadata = _read_metadata(reader, n_keys)
    alignment = _alignment(metadata)
    listed = list(_read_tensor_infos(reader, n_tensors))
    data_start = -(-reader.position // alignment) * alignment
    tensors = _placed(file, listed, data_start, alignment)
    return GgufHeader(version, metadata, tensors, data_start)


class _Reader:
    """A position in the file that only moves forward and never past the end."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.buffer = file.buffer
        self.position = 0
        self.strings_left = limits.MAX_STRINGS

    def fail(self, field: str, problem: str, at: int | None = None) -> FormatError:
        where = self.position if at is None else at
        return FormatError(self.file.path, f"{field} (byte {where})", problem)

    def need(self, n_bytes: int, field: str) -> None:
        left = self.file.size - self.position
        if n_bytes > left:
            raise self.fail(field, f"needs {n_bytes} bytes, the file has {left} left")

    def scalar(self, kind: struct.Struct, field: str) -> Any:
        self.need(kind.size, field)
        (value,) = kind.unpack_from(self.buffer, self.position)
        self.position += kind.size
        return value

    def count(self, field: str, limit: int, min_bytes: int) -> int:
        """A 64-bit count of things that take at least `min_bytes` each."""
        at = self.position
        value: int = self.scalar(_U64, field)
        if value > limit:
            raise self.fail(field, f"is {value}, at most {limit} are allowed", at)
        if value * min_bytes > self.file.size - self.position:
            raise self.fail(field, f"is {value}, more than the rest of the file can hold", at)
        return value

    def string(self, field: str, limit: int) -> str:
        at = self.position
        length = self.count(f"{field}: length", limit, 1)
        start = self.position
        self.position = start + length
        try:
            return self.buffer[start : self.position].decode()
        except UnicodeDecodeError as error:
            raise self.fail(field, f"is not valid UTF-8 ({error.reason})", at) from error

    def strings(self, count: int, field: str) -> list[str]:
        if count > self.strings_left:
            raise self.fail(field, f"makes more than {limits.MAX_STRINGS} strings in the file")
        self.strings_left -= count
        try:
            texts, self.position = read_strings(self.buffer, self.position, count)
        except StringArrayError as error:
            where = f"{field}: string {error.index}"
            raise self.fail(where, error.problem, error.at) from error
        return texts


def _read_version(reader: _Reader) -> int:
    reader.need(4, "magic")
    if reader.buffer[:4] != MAGIC:
        raise reader.fail("magic", f"is {reader.buffer[:4]!r}, must be {MAGIC!r}")
    reader.position = 4
    version: int = reader.scalar(_U32, "version")
    path = reader.file.path
    if version in (0x02000000, 0x03000000):
        raise UnsupportedError(
            f"{path}: version (byte 4): the file is big endian; convert it to little endian"
        )
    if version == 1:
        raise UnsupportedError(
            f"{path}: version (byte 4): GGUF version 1 is not implemented; convert it to version 3"
        )
    if version not in (2, 3):
        raise UnsupportedError(
            f"{path}: version (byte 4): GGUF version {version} is not implemented, only 2 and 3; "
            "use a newer pellucid or convert the file"
        )
    return version


def _read_metadata(reader: _Reader, n_keys: int) -> Metadata:
    values: dict[str, Any] = {}
    types: dict[str, str] = {}
    offsets: dict[str, int] = {}
    for index in range(n_keys):
        at = reader.position
        key = reader.string(f"metadata key {index}", limits.MAX_NAME_BYTES)
        if not key:
            raise reader.fail(f"metadata key {index}", "is empty", at)
        if key in values:
            raise reader.fail(f"metadata key {shown(key)}", "occurs twice", at)
        offsets[key] = reader.position
        values[key], types[key] = _read_value(reader, f"key {shown(key)}")
    return Metadata(reader.file.path, values, types, offsets)


def _read_value(reader: _Reader, field: str) -> tuple[Any, str]:
    """A value and its type in words."""
    kind = _read_value_type(reader, f"{field}: type")
    if kind is ValueType.ARRAY:
        return _read_array(reader, field)
    if kind is ValueType.STRING:
        return reader.string(field, limits.MAX_STRING_BYTES), "string"
    at = reader.position
    value = reader.scalar(_SCALARS[kind], field)
    if kind is ValueType.BOOL:
        if value > 1:
            raise reader.fail(field, f"is a boolean of value {value}, must be 0 or 1", at)
        value = bool(value)
    return value, kind.name.lower()


def _read_value_type(reader: _Reader, field: str) -> ValueType:
    at = reader.position
    number = reader.scalar(_U32, field)
    try:
        return ValueType(number)
    except ValueError as error:
        raise reader.fail(field, f"is {number}, not a type from 0 to 12", at) from error


def _read_array(reader: _Reader, field: str) -> tuple[Any, str]:
    kind = _read_value_type(reader, f"{field}: element type")
    words = f"array of {kind.name.lower()}"
    if kind is ValueType.ARRAY:
        raise UnsupportedError(
            f"{reader.file.path}: {field} (byte {reader.position}): arrays of arrays are not "
            "implemented; remove the key from the file"
        )
    if kind is ValueType.STRING:
        count = reader.count(f"{field}: array length", limits.MAX_STRINGS, 8)
        return reader.strings(count, field), words
    width = _SCALARS[kind].size
    count = reader.count(f"{field}: array length", reader.file.size, width)
    start = reader.position
    reader.position += count * width
    raw = reader.file.data[start : reader.position]
    if kind is ValueType.BOOL:
        if raw.max(initial=0) > 1:
            raise reader.fail(field, "holds a boolean that is neither 0 nor 1", start)
        return raw.view(np.bool_), words
    return raw.view(np.dtype(_SCALARS[kind].format)), words


def _alignment(metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    if metadata.type_of(key) != "uint32":
        raise metadata.error(key, f"is {metadata.type_of(key)}, must be uint32")
    low, high = limits.MIN_ALIGNMENT, limits.MAX_ALIGNMENT
    value = metadata.integer(key)
    if not low <= value <= high or value & (value - 1):
        raise metadata.error(key, f"is {value}, must be a power of two from {low} to {high}")
    return value


@dataclass(frozen=True, slots=True)
class _Listed:
    """A tensor as the file lists it: `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    at: int


def _read_tensor_infos(reader: _Reader, n_tensors: int) -> Iterator[_Listed]:
    seen = set()
    for index in range(n_tensors):
        at = reader.position
        name = reader.string(f"tensor {index}: name", limits.MAX_NAME_BYTES)
        if not name:
            raise reader.fail(f"tensor {index}: name", "is empty", at)
        if name in seen:
            raise reader.fail(f"tensor {shown(name)}", "occurs twice", at)
        seen.add(name)
        shape = _read_shape(reader, name)
        type = _read_tensor_type(reader, name)
        yield _Listed(name, shape, type, reader.scalar(_U64, f"tensor {shown(name)}: offset"), at)


def _read_shape(reader: _Reader, name: str) -> tuple[int, ...]:
    field, at = f"tensor {shown(name)}: dimension count", reader.position
    n_dims = reader.scalar(_U32, field)
    if n_dims > limits.MAX_DIMS:
        raise reader.fail(field, f"is {n_dims}, at most {limits.MAX_DIMS} are allowed", at)
    dims = []
    for axis in range(n_dims):
        field, at = f"tensor {shown(name)}: dimension {axis}", reader.position
        dims.append(reader.scalar(_U64, field))
        if not 0 < dims[-1] <= limits.MAX_ELEMENTS:
            raise reader.fail(field, f"is {dims[-1]}, must be from 1 to 2^48", at)
    return tuple(reversed(dims))


def _read_tensor_type(reader: _Reader, name: str) -> TensorType:
    field, at = f"tensor {shown(name)}: type", reader.position
    number = reader.scalar(_U32, field)
    if number in _TENSOR_TYPES:
        return _TENSOR_TYPES[number]
    raise UnsupportedError(
        f"{reader.file.path}: {field} (byte {at}): type number {number} is unknown; "
        "use a file in another quantisation, such as Q4_K_M or Q8_0"
    )


def _placed(
    file: MappedFile, listed: list[_Listed], data_start: int, alignment: int
) -> dict[str, TensorInfo]:
    """Tensors with their offsets in the file, each checked against the file and one another."""
    tensors = {}
    for tensor in listed:
        field = f"tensor {shown(tensor.name)} (byte {tensor.at})"
        nbytes = checked_byte_count(file.path, field, tensor.type, tensor.shape)
        if tensor.offset % alignment:
            problem = f"offset {tensor.offset} is no multiple of the alignment {alignment}"
            raise FormatError(file.path, field, problem)
        start = data_start + tensor.offset
        if start + nbytes > file.size:
            problem = f"ends at byte {start + nbytes}, the file has {file.size} bytes"
            raise FormatError(
                file.path, field, problem, "the file is cut short or damaged: fetch it again"
            )
        info = TensorInfo(tensor.name, tensor.shape, tensor.type, start, nbytes)
        tensors[tensor.name] = info
    check_no_overlap(file.path, tensors.values())
    return tensors
