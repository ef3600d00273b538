"""Dequantisation is equal, to the bit, to the gguf package's; NaNs and infinities included."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf import quants as gguf_quants
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pellucid.core.errors import UnsupportedError
from pellucid.quant.dequantize import CHUNK_ELEMENTS, dequantize
from pellucid.quant.types import LAYOUTS, LISTED_LAYOUTS, READABLE_TYPES, TensorType, layout

TYPES = sorted(READABLE_TYPES)
# float16 patterns that hurt: zeros, subnormals, the largest, infinities, quiet and signalling NaNs.
HARD_HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
HARD_HALVES += [0xFE01, 0x7C01, 0xFD55, 0x3C00, 0xBC00]


def bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(values).view(np.uint32)


def theirs(raw: npt.NDArray[np.uint8], type: TensorType, n_rows: int) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        rows = raw.reshape(n_rows, -1)
        return gguf_quants.dequantize(rows, gguf.GGMLQuantizationType(int(type)))


def assert_equal_bits(raw: npt.NDArray[np.uint8], type: TensorType, n_rows: int) -> None:
    row = raw.size // n_rows // layout(type).nbytes * layout(type).elements
    ours = dequantize(raw, type, (n_rows, row))
    assert ours.dtype == np.float32 and ours.shape == (n_rows, row)
    np.testing.assert_array_equal(bits(ours), bits(theirs(raw, type, n_rows)))


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_random_bytes(type: TensorType) -> None:
    raw = np.random.default_rng(int(type)).integers(
        0, 256, 24 * 40 * layout(type).nbytes, dtype=np.uint8
    )
    assert_equal_bits(raw, type, 24)


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_bytes(type: TensorType, data: st.DataObject) -> None:
    n_rows = data.draw(st.integers(1, 4))
    n_blocks = data.draw(st.integers(1, 3))
    raw = data.draw(hnp.arrays(np.uint8, n_rows * n_blocks * layout(type).nbytes))
    assert_equal_bits(raw, type, n_rows)


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_hard_scales(type: TensorType) -> None:
    """Every pair of hard float16 values in the scale fields, random bytes elsewhere."""
    n = len(HARD_HALVES)
    raw = np.random.default_rng(7).integers(0, 256, n * n * layout(type).nbytes, dtype=np.uint8)
    blocks = raw.view(LAYOUTS[type].dtype)
    first, second = np.divmod(np.arange(n * n), n)
    halves = [name for name, (kind, *_) in LAYOUTS[type].dtype.fields.items() if kind == "<f2"]
    for name, choice in zip(halves, (first, second), strict=False):
        blocks[name] = np.array(HARD_HALVES, dtype=np.uint16).view(np.float16)[choice]
    assert_equal_bits(raw, type, n)


def test_every_exponent_of_mxfp4() -> None:
    raw = np.arange(256, dtype=np.uint8)[:, None] + np.arange(17, dtype=np.uint8) * 15
    assert_equal_bits(np.ascontiguousarray(raw).reshape(-1), TensorType.MXFP4, 256)


@pytest.mark.parametrize("type", [TensorType.F16, TensorType.BF16], ids=lambda t: t.name)
def test_every_half(type: TensorType) -> None:
    assert_equal_bits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8), type, 1)


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_chunks_do_not_show(type: TensorType) -> None:
    """A tensor longer than one chunk equals its blocks dequantised one by one."""
    n_blocks = CHUNK_ELEMENTS // layout(type).elements + 3
    raw = np.random.default_rng(3).integers(0, 256, n_blocks * layout(type).nbytes, dtype=np.uint8)
    whole = dequantize(raw, type, (n_blocks, layout(type).elements))
    for block in (0, n_blocks - 4, n_blocks - 3, n_blocks - 1):
        one = raw.reshape(n_blocks, -1)[block]
        alone = dequantize(np.ascontiguousarray(one), type, (1, layout(type).elements))
        np.testing.assert_array_equal(bits(whole[block]), bits(alone[0]))


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_bytes_at_odd_addresses(type: TensorType) -> None:
    """A safetensors header may end anywhere, so no tensor can rely on alignment."""
    raw = np.random.default_rng(5).integers(0, 256, layout(type).nbytes * 4 + 1, dtype=np.uint8)
    shape = (4, layout(type).elements)
    odd, copy = raw[1:], raw[1:].copy()
    np.testing.assert_array_equal(
        bits(dequantize(odd, type, shape)), bits(dequantize(copy, type, shape))
    )


def test_aligned_f32_is_a_view() -> None:
    values = np.arange(6, dtype=np.float32)
    assert np.shares_memory(dequantize(values.view(np.uint8), TensorType.F32, (2, 3)), values)


def test_no_dimensions_and_no_elements() -> None:
    one = np.array([1.5], dtype=np.float16).view(np.uint8)
    assert dequantize(one, TensorType.F16, ()) == np.float32(1.5)
    assert dequantize(one[:0], TensorType.Q8_0, (0, 32)).shape == (0, 32)


@pytest.mark.parametrize("type", sorted(LISTED_LAYOUTS), ids=lambda t: t.name)
def test_types_only_listed_are_refused_by_name(type: TensorType) -> None:
    raw = np.zeros(layout(type).nbytes, dtype=np.uint8)
    with pytest.raises(UnsupportedError, match=f"type {type.name} is not implemented; use"):
        dequantize(raw, type, (layout(type).elements,))


def test_a_wrong_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="Q4_0 of shape"):
        dequantize(np.zeros(17, dtype=np.uint8), TensorType.Q4_0, (1, 32))
