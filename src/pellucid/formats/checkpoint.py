"""Checkpoint: a model's metadata and tensors, whatever files they come from.

`open_checkpoint` looks at what a path holds, never only at its name. Files are mapped, not read:
opening touches their headers alone, and a tensor's pages are loaded when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import numpy.typing as npt

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.formats import folder as model_folder
from pellucid.formats import gguf, safetensors
from pellucid.formats.limits import MAX_SHARDS
from pellucid.formats.mapped import MappedFile
from pellucid.formats.metadata import Metadata
from pellucid.formats.shown import shown
from pellucid.formats.tensors import TensorInfo
from pellucid.quant.dequantize import dequantize, unreadable
from pellucid.quant.types import READABLE_TYPES, byte_count

Kind = Literal["gguf", "safetensors"]

_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_GIT_LFS = b"version https://git-lfs"


class Checkpoint:
    """An open model.

    `metadata` holds the keys of a GGUF file or the parsed `config.json` (empty when a bare
    safetensors file has none beside it). `tensors` maps names to `TensorInfo`. `notes` is the free
    text a safetensors file carries about itself.

    Use it as a context manager, or `close` it. Arrays already handed out stay valid after that.
    """

    def __init__(
        self,
        path: Path,
        kind: Kind,
        metadata: Metadata,
        tensors: Mapping[str, TensorInfo],
        files: Sequence[MappedFile],
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self.kind: Kind = kind
        self.metadata = metadata
        self.tensors = tensors
        self.notes: Mapping[str, str] = notes or {}
        self._files = tuple(files)
        self._closed = False

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def files(self) -> tuple[Path, ...]:
        """The weight files, in the order that `TensorInfo.file` counts."""
        return tuple(file.path for file in self._files)

    @property
    def file_bytes(self) -> int:
        """Bytes of all weight files together."""
        return sum(file.size for file in self._files)

    def info(self, name: str) -> TensorInfo:
        """Raises `FormatError` when the checkpoint has no such tensor."""
        if name not in self.tensors:
            raise FormatError(self.path, f"tensor {shown(name)}", "is missing")
        return self.tensors[name]

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """A tensor's bytes as stored: a read-only uint8 view `[nbytes]` of the mapped file."""
        tensor = self.info(name)
        return self._mapped(tensor).data[tensor.offset : tensor.stop]

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor's values, float32 `[*shape]`; aligned F32 data is a read-only view.

        Raises `FormatError` for a missing tensor, `UnsupportedError` for a type only listed.
        """
        tensor = self._readable(name)
        return dequantize(self.raw(name), tensor.type, tensor.shape)

    def rows(self, name: str, row_indices: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Some entries along a tensor's first axis, float32 `[len(row_indices), *shape[1:]]`.

        Only those rows are touched. Raises IndexError for a row that is not there, and what `read`
        raises.
        """
        tensor = self._readable(name)
        indices = np.atleast_1d(np.asarray(row_indices, dtype=np.int64))
        n_rows, row_shape = tensor.shape[0], tensor.shape[1:]
        if indices.size and not 0 <= indices.min() <= indices.max() < n_rows:
            raise IndexError(f"{name} has rows 0 to {n_rows - 1}, not {indices.tolist()}")
        shape = (len(indices), *row_shape)
        table = self.raw(name).reshape(n_rows, byte_count(tensor.type, (1, *row_shape)))
        return dequantize(table[indices].reshape(-1), tensor.type, shape)

    def release(self, name: str | None = None) -> None:
        """Give the memory pages of one tensor, or of all files, back to the system.

        They are loaded again when next touched; pages shared with a neighbouring tensor stay.
        """
        if name is None:
            for file in self._files:
                file.release(0, file.size)
            return
        tensor = self.info(name)
        self._mapped(tensor).release(tensor.offset, tensor.stop)

    def close(self) -> None:
        self._closed = True
        for file in self._files:
            file.close()

    def _mapped(self, tensor: TensorInfo) -> MappedFile:
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        return self._files[tensor.file]

    def _readable(self, name: str) -> TensorInfo:
        tensor = self.info(name)
        if tensor.type not in READABLE_TYPES:
            raise UnsupportedError(f"{self.path}: tensor {shown(name)}: {unreadable(tensor.type)}")
        return tensor


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a GGUF file (or the first of a split one), a safetensors file, or a model folder.

    Raises `BadInput` when nothing can be opened there, `FormatError` when the bytes break their
    format, `UnsupportedError` for pickle files and what else is recognised but not implemented.
    """
    path = Path(path)
    with ExitStack() as on_error:
        if _is_folder(path):
            checkpoint = _open_folder(path, on_error)
        else:
            file = _map(path, on_error)
            match _content(file):
                case "gguf":
                    checkpoint = _open_gguf(file, on_error)
                case "safetensors":
                    checkpoint = _open_safetensors(file)
        on_error.pop_all()
    return checkpoint


def _map(path: Path, on_error: ExitStack) -> MappedFile:
    file = MappedFile(path)
    on_error.callback(file.close)
    return file


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name the system refuses; opening it will say why
        return False


def _content(file: MappedFile) -> Kind:
    """What a file holds by its first bytes, refusing what is not a model by name."""
    head = bytes(file.buffer[:32])
    if head.startswith(gguf.MAGIC):
        return "gguf"
    if _is_pickle(head) or file.path.suffix in model_folder.PICKLE_SUFFIXES:
        raise UnsupportedError(f"{file.path}: {model_folder.PICKLE_REASON}")
    if head.startswith(_GIT_LFS):
        problem = "is a Git LFS pointer, not the model"
        raise FormatError(file.path, "file", problem, "run `git lfs pull` in its folder")
    if head[8:9] == b"{" or file.path.suffix == ".safetensors":
        return "safetensors"
    problem = f"begins with {head[:8]!r}, which neither GGUF nor safetensors does"
    raise FormatError(file.path, "magic (byte 0)", problem, "give a .gguf or .safetensors file")


def _is_pickle(head: bytes) -> bool:
    """A pickle of protocol 2 or later, or the zip archive that torch.save writes around one."""
    return head.startswith((b"PK\x03\x04", b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5"))


def _open_folder(path: Path, on_error: ExitStack) -> Checkpoint:
    paths, weight_map = model_folder.weight_files(path)
    metadata = Metadata(path / model_folder.CONFIG, model_folder.read_config(path))
    files = [_map(file, on_error) for file in paths]
    headers = [safetensors.read_header(file, number) for number, file in enumerate(files)]
    notes = {key: text for header in headers for key, text in header.notes.items()}
    if weight_map is None:
        tensors = headers[0].tensors
    else:
        shards = {
            file.path.name: header.tensors for file, header in zip(files, headers, strict=True)
        }
        tensors = {name: _from_shard(path, shards, name, weight_map[name]) for name in weight_map}
    return Checkpoint(path, "safetensors", metadata, tensors, files, notes)


def _from_shard(
    path: Path, shards: Mapping[str, Mapping[str, TensorInfo]], name: str, shard: str
) -> TensorInfo:
    if name not in shards[shard]:
        problem = f"is not in {shard}, where the index says it is"
        raise FormatError(path / model_folder.INDEX, f"tensor {shown(name)}", problem)
    return shards[shard][name]


def _open_safetensors(file: MappedFile) -> Checkpoint:
    header = safetensors.read_header(file)
    place = file.path.parent
    config = model_folder.read_config(place) if (place / model_folder.CONFIG).exists() else {}
    metadata = Metadata(place / model_folder.CONFIG, config)
    return Checkpoint(file.path, "safetensors", metadata, header.tensors, [file], header.notes)


def _open_gguf(file: MappedFile, on_error: ExitStack) -> Checkpoint:
    header = gguf.read_header(file)
    count = header.metadata.integer("split.count", 1, low=0, high=MAX_SHARDS)
    if count <= 1:
        return Checkpoint(file.path, "gguf", header.metadata, header.tensors, [file])
    return _open_split(file, header, count, on_error)


def _open_split(
    file: MappedFile, header: gguf.GgufHeader, count: int, on_error: ExitStack
) -> Checkpoint:
    """All files of a split model; the first holds the metadata."""
    name = _SPLIT_NAME.fullmatch(file.path.name)
    if name is None or int(name["count"]) != count:
        problem = (
            f"the file is one of {count}, but its name does not end in -00001-of-{count:05}.gguf"
        )
        raise header.metadata.error("split.count", problem, "give the files their original names")
    first = file.path.with_name(f"{name['stem']}-00001-of-{name['count']}.gguf")
    if header.metadata.integer("split.no", high=count - 1) != 0:
        raise BadInput(f"{file.path}: is not the first file of its model; open {first}")
    files, tensors = [file], dict(header.tensors)
    for number in range(1, count):
        part = file.path.with_name(f"{name['stem']}-{number + 1:05}-of-{name['count']}.gguf")
        files.append(_map(part, on_error))
        _add_part(tensors, files[-1], number, count)
    expected = header.metadata.integer("split.tensors.count", len(tensors))
    if expected != len(tensors):
        problem = f"is {expected}, the files hold {len(tensors)} tensors"
        raise header.metadata.error("split.tensors.count", problem)
    return Checkpoint(file.path, "gguf", header.metadata, tensors, files)


def _add_part(tensors: dict[str, TensorInfo], file: MappedFile, number: int, count: int) -> None:
    part = gguf.read_header(file)
    if part.metadata.integer("split.no") != number or part.metadata.integer("split.count") != count:
        raise part.metadata.error("split.no", f"must be {number} of {count}, as in the file's name")
    for name, tensor in part.tensors.items():
        if name in tensors:
            raise FormatError(file.path, f"tensor {shown(name)}", "is already in an earlier file")
        tensors[name] = TensorInfo(
            name, tensor.shape, tensor.type, tensor.offset, tensor.nbytes, number
        )
