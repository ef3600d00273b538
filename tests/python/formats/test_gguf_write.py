"""Files we write: read back by the gguf package and by our reader, and never half a file."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pellucid.core.errors import BadInput, PellucidError
from pellucid.formats import open_checkpoint
from pellucid.formats.gguf_write import Entry, Value, replacing, write_gguf
from pellucid.quant.types import TensorType

KEYS = {
    "general.architecture": Value("string", "llama"),
    "general.name": Value("string", "naïve 名"),
    "a.u8": Value("uint8", 255),
    "a.i64": Value("int64", -(1 << 62)),
    "a.f32": Value("float32", 0.1),
    "a.yes": Value("bool", True),
    "a.words": Value("array of string", ["", "x", "\u2581né"]),
    "a.flags": Value("array of bool", np.array([True, False])),
    "a.floats": Value("array of float32", np.arange(5, dtype=np.float32)),
    "a.none": Value("array of int32", np.zeros(0, np.int32)),
}
TENSORS = [
    Entry("odd", (3, 5), TensorType.F16),
    Entry("blocks", (2, 32), TensorType.Q8_0),
    Entry("line", (7,), TensorType.F32),
]


def content(entry: Entry) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(len(entry.name)).integers(0, 256, entry.nbytes, np.uint8)


def in_two(entry: Entry) -> Iterator[Any]:
    data = content(entry)
    yield data[:3]
    yield bytes(data[3:])


@pytest.mark.parametrize("alignment", [32, 64])
def test_what_is_written_is_read(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "m.gguf"
    keys = {**KEYS, "general.alignment": Value("uint32", alignment)}
    size = write_gguf(path, keys, TENSORS, in_two)
    assert size == path.stat().st_size
    with open_checkpoint(path) as checkpoint:
        for key, value in keys.items():
            assert checkpoint.metadata.type_of(key) == value.type
            np.testing.assert_array_equal(
                checkpoint.metadata[key],
                np.float32(0.1) if key == "a.f32" else value.value,
            )
        for entry in TENSORS:
            info = checkpoint.tensors[entry.name]
            assert (info.shape, info.type) == (entry.shape, entry.type)
            assert info.offset % alignment == 0
            np.testing.assert_array_equal(checkpoint.raw(entry.name), content(entry))
    theirs = gguf.GGUFReader(path)
    assert theirs.fields["a.words"].contents() == KEYS["a.words"].value
    assert theirs.fields["general.name"].contents() == KEYS["general.name"].value
    for tensor, entry in zip(theirs.tensors, TENSORS, strict=True):
        assert tensor.name == entry.name and tuple(tensor.shape[::-1]) == entry.shape
        np.testing.assert_array_equal(tensor.data.view(np.uint8).reshape(-1), content(entry))


def failing(entry: Entry) -> Iterator[Any]:
    yield bytes(1)
    raise BadInput("the middle")


def interrupted(entry: Entry) -> Iterator[Any]:
    yield bytes(1)
    raise KeyboardInterrupt


def short(entry: Entry) -> Iterator[Any]:
    yield bytes(1)


@pytest.mark.parametrize(
    ("data", "error"),
    [(failing, BadInput), (interrupted, KeyboardInterrupt), (short, ValueError)],
)
def test_the_old_file_stays_when_writing_fails(
    tmp_path: Path, data: Any, error: type[BaseException]
) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("old")
    with pytest.raises(error):
        write_gguf(path, KEYS, TENSORS, data)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_there_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        write_gguf(tmp_path / "m.gguf", KEYS, TENSORS, failing)
    assert list(tmp_path.iterdir()) == []


def test_two_writers_of_one_name(tmp_path: Path) -> None:
    """Of one process number too, as containers have; and a name as long as names can be."""
    path = tmp_path / ("m" * 250 + ".gguf")
    with replacing(path, 0) as first, replacing(path, 0) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder"):
        write_gguf(tmp_path, KEYS, TENSORS, in_two)
    with pytest.raises(BadInput, match="is no folder"):
        write_gguf(tmp_path / "none" / "m.gguf", KEYS, TENSORS, in_two)


def test_a_disk_too_small_is_known_before(tmp_path: Path) -> None:
    vast = [Entry("vast", (1 << 20, 1 << 27), TensorType.F32)]
    with pytest.raises(PellucidError, match="the disk has"):
        write_gguf(tmp_path / "m.gguf", KEYS, vast, in_two)
    assert list(tmp_path.iterdir()) == []


_LIMITED = """
import resource, sys
from pathlib import Path
from pellucid.formats.gguf_write import Entry, Value, write_gguf
from pellucid.quant.types import TensorType
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
entry = Entry("t", (1 << 20,), TensorType.F32)
write_gguf(Path(sys.argv[1]), {}, [entry], lambda e: [bytes(e.nbytes)])
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on the size of files")
def test_a_file_that_the_system_will_not_let_grow(tmp_path: Path) -> None:
    """As on a full disk: the write itself fails."""
    path = tmp_path / "m.gguf"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "PellucidError" in done.stderr and "cannot be written" in done.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
