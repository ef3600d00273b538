"""safetensors files written by the safetensors package, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attacks.safetensors_file import entry, safetensors_file
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save, save_file

from pellucid.core.errors import UnsupportedError
from pellucid.formats import open_checkpoint

NUMPY_DTYPES = ["float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8"]
NUMPY_DTYPES += ["uint16", "uint32", "uint64", "bool"]


@given(
    tensors=st.dictionaries(
        st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__"),
        hnp.arrays(
            st.sampled_from([np.float32, np.float16]),
            hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
        ),
        min_size=1,
        max_size=6,
    ),
    notes=st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_any_floats(
    tensors: dict[str, np.ndarray],
    notes: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("s") / "a.safetensors"
    path.write_bytes(save(tensors, notes))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.kind == "safetensors"
        assert set(checkpoint.tensors) == set(tensors)
        assert checkpoint.notes == notes
        for name, values in tensors.items():
            read = checkpoint.read(name)
            assert read.dtype == np.float32
            np.testing.assert_array_equal(read, values.astype(np.float32))


def test_bfloat16_is_the_upper_half_of_float32(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 3.0e38, 1e-40], dtype=np.float32).view(np.uint32) >> 16 << 16
    data = (values >> 16).astype("<u2").tobytes()
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_file({"x": entry("BF16", [4], 0, 8)}, data))
    with open_checkpoint(path) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read("x").view(np.uint32), values)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_every_dtype_is_listed_with_its_size(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": np.zeros((3, 5), dtype=dtype)}, path)
    with safe_open(path, "numpy") as theirs:
        assert theirs.get_tensor("x").nbytes == 15 * np.dtype(dtype).itemsize
    with open_checkpoint(path) as checkpoint:
        tensor = checkpoint.tensors["x"]
        assert (tensor.shape, tensor.nbytes) == ((3, 5), 15 * np.dtype(dtype).itemsize)
        if dtype not in ("float32", "float16"):
            with pytest.raises(UnsupportedError, match=f"'x': type {tensor.type.name} is"):
                checkpoint.read("x")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2"])
def test_float8_is_listed_but_not_read(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_file({"x": entry(dtype, [4], 0, 4)}, bytes(4)))
    with open_checkpoint(path) as checkpoint, pytest.raises(UnsupportedError, match=dtype):
        checkpoint.read("x")


def test_a_header_of_any_length_may_end_at_an_odd_byte(tmp_path: Path) -> None:
    values = np.arange(4, dtype=np.float32)
    for spaces in range(4):
        path = tmp_path / f"{spaces}.safetensors"
        header = '{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}' + " " * spaces
        path.write_bytes(safetensors_file(header, values.tobytes()))
        with open_checkpoint(path) as checkpoint:
            np.testing.assert_array_equal(checkpoint.read("x"), values)


def test_rows_of_an_empty_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(save({"x": np.zeros((0, 3), dtype=np.float16), "y": np.zeros((2, 0), "f4")}))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.rows("x", []).shape == (0, 3)
        assert checkpoint.rows("y", [1, 1, 0]).shape == (3, 0)
        with pytest.raises(IndexError):
            checkpoint.rows("x", [0])


def test_a_file_with_another_name_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(save({"x": np.zeros(2, dtype=np.float32)}))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.kind == "safetensors"
