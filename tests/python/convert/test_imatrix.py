"""Importance matrices: as the gguf package reads them, and in llama.cpp's older form."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.convert.imatrix import Importance, check_fits, read_imatrix, write_imatrix
from pellucid.core.errors import BadInput, FormatError, PellucidError

SUMS = {
    "blk.0.attn_q.weight": np.array([3, 0, 6, 9], np.float32),
    "blk.0.ffn_down.weight": np.array([1, 2], np.float32),
}


def test_written_as_llama_cpp_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    importance = Importance(SUMS, 1100, 512, "a.txt")
    write_imatrix(path, importance)
    reader = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert len(tensors) == 4
    for name, sums in SUMS.items():
        found, counts = tensors[f"{name}.in_sum2"], tensors[f"{name}.counts"]
        assert list(found.shape) == [len(sums), 1] and list(counts.shape) == [1, 1]
        np.testing.assert_array_equal(found.data.reshape(-1), sums)
        assert counts.data.reshape(-1).tolist() == [1100]
    assert reader.get_field("general.type").contents() == "imatrix"  # type: ignore[union-attr]
    assert reader.get_field("imatrix.datasets").contents() == ["a.txt"]  # type: ignore[union-attr]
    assert reader.get_field("imatrix.chunk_count").contents() == 3  # type: ignore[union-attr]
    again = read_imatrix(path)
    for name, squares in importance.squares.items():
        np.testing.assert_array_equal(again[name], squares)
        np.testing.assert_allclose(squares, SUMS[name] / 1100)


def test_experts_together(tmp_path: Path) -> None:
    """One that no token came to does not count."""
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "")
    sums = np.array([[2, 4], [0, 0], [6, 0]], np.float32)
    writer.add_tensor("blk.0.ffn_up_exps.weight.in_sum2", sums)
    counts = np.array([[1], [0], [3]], np.float32)
    writer.add_tensor("blk.0.ffn_up_exps.weight.counts", counts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert read_imatrix(path)["blk.0.ffn_up_exps.weight"].tolist() == [2, 1]


def binary(calls: int = 10) -> bytes:
    parts = [struct.pack("<i", len(SUMS))]
    for name, values in SUMS.items():
        parts += [struct.pack("<i", len(name)), name.encode()]
        parts += [struct.pack("<ii", calls, len(values)), values.tobytes()]
    return b"".join([*parts, struct.pack("<i", 3), struct.pack("<i", 5), b"a.txt"])


def test_the_older_form(tmp_path: Path) -> None:
    path = tmp_path / "imatrix.dat"
    path.write_bytes(binary())
    found = read_imatrix(path)
    assert found.keys() == SUMS.keys()
    for name, sums in SUMS.items():
        np.testing.assert_allclose(found[name], sums / 10)


@given(data=st.data())
def test_damaged_bytes_are_an_error_or_other_numbers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(binary())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    path = tmp_path_factory.mktemp("d") / "i"
    path.write_bytes(cut)
    try:
        found = read_imatrix(path)
    except PellucidError as error:
        assert str(path) in str(error)
    else:
        assert all((squares >= 0).all() for squares in found.values())


def test_numbers_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_imatrix(path, Importance({"a": np.array([1, np.nan], np.float32)}, 4, 2, "t"))
    with pytest.raises(FormatError, match="negative, infinite or no number"):
        read_imatrix(path)


def test_of_another_model(tmp_path: Path) -> None:
    path, squares = tmp_path / "m", {"a": np.ones(4, np.float32), "z": np.ones(1, np.float32)}
    check_fits(path, squares, [("a", (7, 4)), ("b", (1, 2))])
    with pytest.raises(BadInput, match="has 4 inputs for a, and the model 8"):
        check_fits(path, squares, [("a", (7, 8))])
    with pytest.raises(BadInput, match="none of the model's matrices"):
        check_fits(path, squares, [("b", (7, 4))])
