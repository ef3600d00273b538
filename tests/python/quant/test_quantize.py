"""Quantisers: never worse than plain rounding, and what they write means what they meant."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants as gguf_quants
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, UnsupportedError
from pellucid.quant.dequantize import dequantize
from pellucid.quant.quantize import QUANTIZED_TYPES, WRITABLE_TYPES, quantize
from pellucid.quant.types import TensorType, byte_count

Floats = NDArray[np.float32]

TYPES = sorted(QUANTIZED_TYPES)
PLAINLY = [t for t in TYPES if not t.name.endswith("_K")]  # what the gguf package quantises
# Root mean square error relative to the values', of normal ones: what the bits allow.
BOUNDS = {
    TensorType.Q4_0: 0.083,
    TensorType.Q4_1: 0.071,
    TensorType.Q5_0: 0.042,
    TensorType.Q5_1: 0.035,
    TensorType.Q8_0: 0.0050,
    TensorType.Q4_K: 0.072,
    TensorType.Q5_K: 0.036,
    TensorType.Q6_K: 0.0175,
}
SHAPES = ("normal", "heavy", "uniform", "positive", "sparse")


def tensor(kind: str, rows: int = 8, row: int = 512) -> Floats:
    rng = np.random.default_rng(SHAPES.index(kind))
    values = {
        "normal": lambda: rng.standard_normal((rows, row)) * 0.02,
        "heavy": lambda: rng.standard_t(2, (rows, row)),
        "uniform": lambda: rng.random((rows, row)) - 0.3,
        "positive": lambda: rng.standard_normal((rows, row)) * 0.01 + 3,
        "sparse": lambda: rng.standard_normal((rows, row)) * (rng.random((rows, row)) < 0.05),
    }[kind]()
    return values.astype(np.float32)


def lost(values: Floats, type: TensorType, importance: Floats | None = None) -> Floats:
    return values - dequantize(quantize(values, type, importance), type, values.shape)


def rms(a: Floats) -> float:
    return float(np.sqrt(np.mean(a.astype(np.float64) ** 2)))


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_normal_values_lose_what_the_bits_ask_for(type: TensorType) -> None:
    values = tensor("normal", 16, 1024)
    assert rms(lost(values, type)) < BOUNDS[type] * rms(values)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("type", PLAINLY, ids=lambda t: t.name)
def test_less_is_lost_than_by_plain_rounding(type: TensorType, kind: str) -> None:
    values = tensor(kind)
    theirs = gguf_quants.quantize(values, gguf.GGMLQuantizationType(int(type)))
    plain = values - dequantize(theirs.reshape(-1), type, values.shape)
    assert rms(lost(values, type)) < rms(plain)
    # With errors that all weigh alike it is so in every block.
    alike = lost(values, type, np.ones(values.shape[1], np.float32))
    ours, plain = (np.square(e.reshape(-1, 32)).sum(axis=1) for e in (alike, plain))
    assert (ours <= plain * 1.0001 + 1e-12).all()


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("type", [t for t in TYPES if t.name.endswith("_K")], ids=lambda t: t.name)
def test_every_group_of_a_super_block_finds_its_scale(type: TensorType, kind: str) -> None:
    """No group of 32 loses more than an eighth (sixteenth, 32nd) of its own range, though all
    share the super-block's numbers."""
    values = tensor(kind)
    error = np.abs(lost(values, type)).reshape(-1, 256).max(axis=1)
    span = np.abs(values).reshape(-1, 256).max(axis=1)
    steps = {TensorType.Q4_K: 15, TensorType.Q5_K: 31, TensorType.Q6_K: 32}[type]
    assert (error <= 2 * span / steps).all()


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_importance_moves_the_error_to_where_it_counts_least(type: TensorType) -> None:
    values = tensor("normal", 16, 512)
    importance = np.random.default_rng(5).exponential(size=512).astype(np.float32) ** 3

    def weighed(error: Floats) -> float:
        return rms(error * np.sqrt(importance))

    assert weighed(lost(values, type, importance)) < 0.99 * weighed(lost(values, type))
    # Only their ratios count.
    same = quantize(values, type, 8 * importance)
    np.testing.assert_array_equal(same, quantize(values, type, importance))


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_finite_values(type: TensorType, data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([2.0**-140, 2.0**-30, 2.0**-20, 1.0, 2.0**13]))
    values = data.draw(hnp.arrays(np.float32, (2, 256), elements=st.floats(-1, 1, width=32)))
    values *= np.float32(width)
    raw = quantize(values, type)
    assert raw.dtype == np.uint8 and raw.nbytes == byte_count(type, values.shape)
    restored = dequantize(raw, type, values.shape)
    assert np.isfinite(restored).all()
    # Never worse than all zeros, of which every type is capable.
    assert rms(restored - values) <= 1.001 * rms(values)


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_rows_do_not_know_of_one_another(type: TensorType) -> None:
    values = tensor("heavy", 200, 256)
    alone = [quantize(row[None], type) for row in values[:3]]
    np.testing.assert_array_equal(
        quantize(values, type)[: sum(map(len, alone))], np.concatenate(alone)
    )


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_zeros_stay_zeros(type: TensorType) -> None:
    zeros = np.zeros((1, 256), np.float32)
    assert not dequantize(quantize(zeros, type), type, zeros.shape).any()


def test_the_nearest_of_the_narrow_types() -> None:
    values = tensor("heavy").astype(np.float32)
    half = dequantize(quantize(values, TensorType.F16), TensorType.F16, values.shape)
    np.testing.assert_array_equal(half, values.astype(np.float16).astype(np.float32))
    theirs = gguf_quants.quantize(values, gguf.GGMLQuantizationType.BF16)
    np.testing.assert_array_equal(quantize(values, TensorType.BF16), theirs.reshape(-1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("type", sorted(WRITABLE_TYPES), ids=lambda t: t.name)
def test_what_is_not_finite_is_refused(type: TensorType, bad: float) -> None:
    values = tensor("normal")
    values[3, 7] = bad
    with pytest.raises(BadInput, match="infinite or not a number"):
        quantize(values, type)


@pytest.mark.parametrize("type", sorted(WRITABLE_TYPES - {TensorType.F32}), ids=lambda t: t.name)
def test_what_is_too_large_is_refused(type: TensorType) -> None:
    with pytest.raises(BadInput, match=r"beyond|too large"):
        quantize(np.full((1, 256), 3.4e38, np.float32), type)


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(UnsupportedError, match="type IQ4_XS is not written here"):
        quantize(np.zeros((1, 256), np.float32), TensorType.IQ4_XS)
    with pytest.raises(ValueError, match="rows of 96 do not divide"):
        quantize(np.zeros((8, 96), np.float32), TensorType.Q4_K)
