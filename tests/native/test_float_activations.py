"""Quantised weights times activations in f32: the exact weights, the same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pellucid import _native
from pellucid.core.errors import BadInput
from pellucid.ops import backend
from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from pellucid.quant.dequantize import dequantize
from pellucid.quant.quantize import quantize
from pellucid.quant.types import TensorType
from tests.native.cases import SIMD, Float32, assert_close, same_bits
from tests.native.families import tiny_model
from tests.native.test_models import logits, tokens_of

EPS = float(np.finfo(np.float32).eps)
TYPES = [TensorType[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K")]
N_OUT, K = 37, 768


def weight(type: TensorType, simd: str = "") -> tuple[_native.matmul.Weight, Float32]:
    """Packed, and its exact values."""
    values = np.random.default_rng(3).standard_normal((N_OUT, K)).astype(np.float32)
    raw = np.ascontiguousarray(quantize(values, type)).reshape(-1).view(np.uint8)
    pool = _native.program.Pool(2)
    matrices = [(int(type), raw, N_OUT, K, False, False)]
    [packed] = _native.matmul.pack_all_for_floats(matrices, pool, simd)
    return packed, dequantize(raw, type, (N_OUT, K))


def rows(n: int) -> Float32:
    return np.random.default_rng(n).standard_normal((n, K)).astype(np.float32)


def times(packed: _native.matmul.Weight, x: NDArray[np.float32], add: bool = False) -> Float32:
    y = np.ones((len(x), N_OUT), np.float32)
    bias = np.arange(N_OUT, dtype=np.float32)
    packed.multiply(x, y, bias, add)
    return y


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
@pytest.mark.parametrize("add", [False, True])
def test_products_are_those_of_the_exact_weights(type: TensorType, add: bool) -> None:
    packed, exact = weight(type)
    assert packed.activations == "f32"
    x = rows(70)
    expected = (x.astype(np.float64) @ exact.T.astype(np.float64)) + np.arange(N_OUT) + add
    bound = 64 * EPS * float(np.abs(x).max() * np.abs(exact).sum(axis=1).max())
    assert_close(times(packed, x, add), expected.astype(np.float32), bound / 16)


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
@pytest.mark.parametrize("simd", [name for name in SIMD if name != "generic"])
def test_bits_are_those_of_the_generic_twin(type: TensorType, simd: str) -> None:
    x = rows(9)
    assert same_bits(times(weight(type, simd)[0], x), times(weight(type, "generic")[0], x))


@given(st.integers(1, 80), st.integers(0, 79), st.sampled_from(TYPES))
@settings(max_examples=25, deadline=None)
def test_a_row_has_its_bits_in_any_company(n: int, index: int, type: TensorType) -> None:
    packed, x = weight(type)[0], rows(n)
    i = index % n
    assert same_bits(times(packed, x)[i : i + 1], times(packed, x[i : i + 1].copy()))


def test_refuses_what_does_not_fit() -> None:
    packed = weight(TensorType.Q4_0)[0]
    with pytest.raises(ValueError, match="the weight k = 768"):
        packed.multiply(np.zeros((1, 32), np.float32), np.zeros((1, N_OUT), np.float32))
    quantized = _native.matmul.QuantizedRows(rows(1))
    with pytest.raises(ValueError, match="no f32 rows"):
        packed.multiply(quantized, np.zeros((1, N_OUT), np.float32))


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3MoeForCausalLM"])
def test_a_model_agrees_with_the_reference(architecture: str) -> None:
    """As closely as with float weights: nothing is lost but the order of sums."""
    tokens = tokens_of(60)
    expected = logits(tiny_model(architecture, ReferenceOps(), TensorType.Q8_0), tokens)
    ops = NativeOps(threads=2, kv_dtype="f32", activations="f32")
    actual = logits(tiny_model(architecture, ops, TensorType.Q8_0), tokens)
    assert_close(actual, expected, 3e-5 * float(np.abs(expected).max()))


def test_other_names_are_refused() -> None:
    with pytest.raises(
        BadInput, match="activations 'int4' are unknown: choose one of int8, bf16, f32"
    ):
        NativeOps(activations="int4")
    with pytest.raises(BadInput, match="the reference backend has f32 alone"):
        backend("reference", activations="int8")
