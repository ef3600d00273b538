"""GGUF files written by the gguf package and by our own writer, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from attacks.gguf_file import (
    ARRAY,
    FLOAT32,
    GgufFile,
    Tensor,
    array,
    gguf_file,
    good_file,
    string,
    u32,
    u64,
    zeros,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import UnsupportedError
from pellucid.formats import open_checkpoint
from pellucid.formats.gguf import ValueType
from pellucid.quant.types import TensorType

# Strings on both sides of what the fast path of string arrays takes: short, 255 and 256 bytes,
# empty, with zeros, not ASCII.
HARD_TEXTS = ["", "a", "\0", "\0" * 7, "\0" * 8, "a" + "\0" * 7 + "b", "é" * 127, "x" * 255]
HARD_TEXTS += ["x" * 256, "x" * 257, "▁the", "👩🏽‍🚀", "\1" + "\0" * 7 + "z", "x" * 70_000]


def write(path: Path, file: GgufFile) -> Path:
    path.write_bytes(file.write())
    return path


def one_array(path: Path, kind: int, values: list[Any]) -> Any:
    keys = {
        "before": (FLOAT32, u32(0)),
        "it": (ARRAY, array(kind, values)),
        "after": (8, string("!")),
    }
    with open_checkpoint(write(path, gguf_file(keys, []))) as checkpoint:
        assert checkpoint.metadata["after"] == "!"
        return checkpoint.metadata["it"]


SCALARS = {
    "UINT8": (0, 255),
    "INT8": (-128, 127),
    "UINT16": (0, 2**16 - 1),
    "INT16": (-(2**15), 2**15 - 1),
    "UINT32": (0, 2**32 - 1),
    "INT32": (-(2**31), 2**31 - 1),
    "UINT64": (0, 2**64 - 1),
    "INT64": (-(2**63), 2**63 - 1),
    "FLOAT32": (-1.5, 1e30),
    "FLOAT64": (-1.5, 1e300),
    "BOOL": (False, True),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_and_arrays_of_each_type(name: str, tmp_path: Path) -> None:
    low, high = SCALARS[name]
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    for key, value in (("low", low), ("high", high)):
        writer.add_key_value(key, value, gguf.GGUFValueType[name])
    writer.add_key_value("both", [low, high], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(tmp_path / "a.gguf") as checkpoint:
        metadata = checkpoint.metadata
        for key, value in (("low", low), ("high", high)):
            assert metadata[key] == (np.float32(value) if name == "FLOAT32" else value)
            assert type(metadata[key]) is type(value)
            assert metadata.type_of(key) == name.lower()
        np.testing.assert_array_equal(
            metadata["both"], np.array([low, high], metadata["both"].dtype)
        )
        assert metadata.type_of("both") == f"array of {name.lower()}"
        assert not metadata["both"].flags.writeable


@given(texts=st.lists(st.text(max_size=30) | st.sampled_from(HARD_TEXTS), max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_strings(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    assert one_array(tmp_path_factory.mktemp("s") / "a.gguf", 8, texts) == texts


@pytest.mark.parametrize("hard", range(len(HARD_TEXTS)))
def test_one_hard_string_among_many(hard: int, tmp_path: Path) -> None:
    """Enough strings for several windows of the fast path, one of them hard."""
    texts = [f"token{i}" for i in range(9_000)]
    texts[5_000] = HARD_TEXTS[hard]
    assert one_array(tmp_path / "a.gguf", 8, texts) == texts


def test_many_hard_strings(tmp_path: Path) -> None:
    texts = [HARD_TEXTS[i * 7 % 13] for i in range(20_000)]
    assert one_array(tmp_path / "a.gguf", 8, texts) == texts


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_lie_where_the_gguf_package_finds_them(version: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", good_file().replace("version", u32(version)))
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == list(theirs)
        for name, tensor in checkpoint.tensors.items():
            assert tensor.offset == theirs[name].data_offset
            assert tensor.nbytes == theirs[name].n_bytes
            assert tensor.shape == tuple(reversed(theirs[name].shape.tolist()))
            assert tensor.type == theirs[name].tensor_type


def test_values_come_back_rows_first(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("t", values)
    writer.add_tensor("h", values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(tmp_path / "a.gguf") as checkpoint:
        for name in "th":
            np.testing.assert_array_equal(checkpoint.read(name), values)


@pytest.mark.parametrize("alignment", [8, 16, 64, 4096])
def test_other_alignments(alignment: int, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_custom_alignment(alignment)
    values = [np.full(5, i, dtype=np.float32) for i in range(3)]
    for i, value in enumerate(values):
        writer.add_tensor(str(i), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(tmp_path / "a.gguf") as checkpoint:
        for i, value in enumerate(values):
            np.testing.assert_array_equal(checkpoint.read(str(i)), value)


def test_types_only_listed_open_but_are_not_read(tmp_path: Path) -> None:
    tensors = [Tensor("odd", (256,), int(TensorType.IQ2_XXS), bytes(66)), zeros("fine", (4,))]
    path = write(tmp_path / "a.gguf", gguf_file({}, tensors))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors["odd"].type is TensorType.IQ2_XXS
        assert checkpoint.read("fine").tolist() == [0, 0, 0, 0]
        for read in (checkpoint.read, lambda name: checkpoint.rows(name, [0])):
            with pytest.raises(UnsupportedError, match="'odd': type IQ2_XXS is not implemented"):
                read("odd")


def test_room_between_tensors_and_at_the_end_is_allowed(tmp_path: Path) -> None:
    """The specification asks for aligned offsets, not for the closest ones."""
    file = gguf_file({}, [zeros("a", (4,)), zeros("b", (4,))])
    file = file.replace("b: offset", u64(96)).replace("a: data padding", bytes(80))
    file = file.replace("b: data", np.arange(4, dtype=np.float32).tobytes())
    path = write(tmp_path / "a.gguf", file)
    path.write_bytes(path.read_bytes() + b"more")
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.read("b").tolist() == [0, 1, 2, 3]


def test_value_types_are_those_of_gguf() -> None:
    assert {t.name: int(t) for t in ValueType} == {t.name: int(t) for t in gguf.GGUFValueType}


def test_a_split_model_is_one(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    values = [np.full((2, 4), i, dtype=np.float32) for i in range(5)]
    for i, value in enumerate(values):
        writer.add_tensor(f"t{i}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first = tmp_path / "m-00001-of-00003.gguf"
    with open_checkpoint(first) as checkpoint:
        assert checkpoint.metadata["general.architecture"] == "llama"
        assert [path.name for path in checkpoint.files] == [
            f"m-{n:05}-of-00003.gguf" for n in (1, 2, 3)
        ]
        assert checkpoint.file_bytes == sum(p.stat().st_size for p in tmp_path.iterdir())
        for i, value in enumerate(values):
            np.testing.assert_array_equal(checkpoint.read(f"t{i}"), value)
