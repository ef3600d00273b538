"""Writing GGUF version 3, little endian (the format's specification: ggml, docs/gguf.md).

The file comes to be under a temporary name in its own folder, is forced to the disk and then takes
its name: whoever opens the name finds the old file or the whole new one, whatever happened.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pellucid.core.errors import BadInput, PellucidError
from pellucid.formats import limits
from pellucid.formats.gguf import DEFAULT_ALIGNMENT, MAGIC, ValueType
from pellucid.quant.types import TensorType, byte_count

VERSION = 3
_FORMATS = {
    ValueType.UINT8: "<u1",
    ValueType.INT8: "<i1",
    ValueType.UINT16: "<u2",
    ValueType.INT16: "<i2",
    ValueType.UINT32: "<u4",
    ValueType.INT32: "<i4",
    ValueType.FLOAT32: "<f4",
    ValueType.BOOL: "u1",
    ValueType.UINT64: "<u8",
    ValueType.INT64: "<i8",
    ValueType.FLOAT64: "<f8",
}


@dataclass(frozen=True, slots=True)
class Value:
    """A metadata value and its type in words, as `Metadata.type_of` gives it: "uint32", "string",
    "array of float32"."""

    type: str
    value: Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of the file to be: `shape` rows first."""

    name: str
    shape: tuple[int, ...]
    type: TensorType

    @property
    def nbytes(self) -> int:
        return byte_count(self.type, self.shape)


Data = Callable[[Entry], Iterable[Any]]


def write_gguf(
    path: Path, metadata: Mapping[str, Value], tensors: Sequence[Entry], data: Data
) -> int:
    """Write the file `path` and return its size in bytes.

    `data` gives an entry's bytes, in pieces that have the buffer interface. Raises `BadInput` for a
    place that cannot be written, `PellucidError` when the disk is full or fails, ValueError for
    values and data that the format cannot hold; then `path` is as it was.
    """
    header, starts, size = _layout(metadata, tensors)
    with replacing(path, size) as file:
        file.write(header)
        for entry, start in zip(tensors, starts, strict=True):
            file.write(bytes(start - file.tell()))
            written = sum(file.write(piece) for piece in data(entry))
            if written != entry.nbytes:
                raise ValueError(f"{entry.name}: {written} bytes of {entry.nbytes}")
        file.write(bytes(size - file.tell()))
    return size


@contextmanager
def replacing(path: Path, size: int) -> Iterator[BinaryIO]:
    """A file of about `size` bytes that takes the name `path` when the block ends, and vanishes
    when it raises. Where `path` is a link, what it names is replaced."""
    check_place(path, size)
    place = Path(os.path.realpath(path))
    # Not by the process's number: in containers all have the same, and a killed one left a file.
    temporary = place.with_name(f".{place.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with _opened(temporary, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
        _sync_folder(place.parent)
    except OSError as error:
        raise PellucidError(
            f"{path}: cannot be written: {error.strerror or error}; free space or choose another "
            "place"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def check_place(path: Path, size: int) -> None:
    """Whether a file of `size` bytes can be written as `path`, as far as can be said before. Raises
    as `replacing`."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; name the file to write")
    if path.exists() and not path.is_file():  # /dev/null would become a file for all
        raise BadInput(f"{path}: is a device or a pipe; name a file to write")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise BadInput(f"{folder}: is no folder; make it, or write elsewhere")
    free = shutil.disk_usage(folder).free
    if size > free:
        raise PellucidError(
            f"{path}: takes {size} bytes and the disk has {free} left; free space or choose "
            "another place"
        )


def _opened(temporary: Path, path: Path) -> BinaryIO:
    try:
        return temporary.open("xb")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}; check the folder") from error


def _sync_folder(folder: Path) -> None:
    """The new name itself, forced to the disk where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _layout(
    metadata: Mapping[str, Value], tensors: Sequence[Entry]
) -> tuple[bytes, list[int], int]:
    """Everything before the data; where each tensor starts; the size of the whole."""
    given = metadata.get("general.alignment")
    alignment = DEFAULT_ALIGNMENT if given is None else int(given.value)
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_string(key), *_value(value)]
    offsets, end = [], 0
    for entry in tensors:
        offsets.append(end)
        parts.append(_info(entry, end))
        end += -(-entry.nbytes // alignment) * alignment
    header = b"".join(parts)
    start = -(-len(header) // alignment) * alignment
    return header, [start + offset for offset in offsets], start + end


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> Iterator[bytes]:
    element = value.type.removeprefix("array of ")
    kind = ValueType[element.upper()]
    if element != value.type:
        items = value.value
        yield struct.pack("<IIQ", ValueType.ARRAY, kind, len(items))
        if kind is ValueType.STRING:
            yield b"".join(map(_string, items))
        else:
            yield np.asarray(items).astype(_FORMATS[kind]).tobytes()
    else:
        yield struct.pack("<I", kind)
        if kind is ValueType.STRING:
            yield _string(value.value)
        else:
            yield np.array(value.value, _FORMATS[kind]).tobytes()


def _info(entry: Entry, offset: int) -> bytes:
    if not 0 < len(entry.shape) <= limits.MAX_DIMS:
        raise ValueError(f"{entry.name} has {len(entry.shape)} dimensions")
    dims = entry.shape[::-1]
    packed = struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, int(entry.type), offset)
    return _string(entry.name) + packed
