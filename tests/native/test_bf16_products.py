"""Products of bfloat16: the tiles against the generic twin, that against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.quant.dequantize import dequantize
from pellucid.quant.types import LAYOUTS, TensorType
from tests.native.test_matmul import (
    FAST,
    SIMD,
    Floats,
    Product,
    assert_same_bits,
    matmul,
    random_raw,
    random_rows,
)

TYPES = [TensorType.Q4_0, TensorType.Q4_1]


class Bf16Product(Product):
    def __post_init__(self) -> None:
        raw, n, k = self.raw, self.n, self.k
        self.weight = matmul.pack(int(self.type), raw, n, k, self.simd, None, True)

    def rows(self, x: Floats) -> object:
        return matmul.Bf16Rows(x, self.simd)


def error_of(product: Product, x: Floats) -> float:
    """The largest, in units of what an output is made of: the root of a sum of squares."""
    w = dequantize(product.raw, product.type, (product.n, product.k)).astype(np.float64)
    size = np.sqrt((x.astype(np.float64) ** 2) @ (w**2).T)
    return float((np.abs(product(x) - x.astype(np.float64) @ w.T) / size).max())


def weights_alike(rng: np.random.Generator, type: TensorType, n: int, k: int) -> Floats:
    """Bytes of a tensor whose blocks' scales are within a factor of four, as in models."""
    raw = random_raw(rng, type, n, k)
    fields = raw.view(LAYOUTS[type].dtype)
    fields["d"] = rng.uniform(0.5, 2, fields["d"].shape)
    if "m" in (LAYOUTS[type].dtype.names or ()):
        fields["m"] = -8 * fields["d"].astype(np.float32)
    return raw


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_more_exact_than_eight_bits(type: TensorType) -> None:
    rng = np.random.default_rng(1)
    raw = weights_alike(rng, type, 48, 1536)
    x = random_rows(rng, 8, 1536)
    narrow, ours = (
        error_of(Product(type, 48, 1536, raw), x),
        error_of(Bf16Product(type, 48, 1536, raw), x),
    )
    # 8 bits round to 1/254 of a block's largest value; bfloat16 weights and activations each to
    # 1/512 of themselves at most, and a weight's scale and minimum to half precision before.
    assert narrow > 4e-3
    assert ours < narrow / 1.5


@pytest.mark.parametrize("simd", FAST)
@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_same_bits_as_generic(type: TensorType, simd: str) -> None:
    """One chunk of K and several, one group and several; less than a tile, some that reach back."""
    rng = np.random.default_rng(int(type))
    for n, k in [(1, 32), (15, 96), (16, 512), (33, 544), (41, 1536)]:
        raw = random_raw(rng, type, n, k)
        ours, twin = Bf16Product(type, n, k, raw, simd), Bf16Product(type, n, k, raw)
        bias = random_rows(rng, 1, n)[0]
        for rows in (1, 2, 5, 6, 9, 15, 16, 17, 40):
            x, onto = random_rows(rng, rows, k), random_rows(rng, rows, n)
            assert_same_bits(ours(x), twin(x))
            assert_same_bits(ours(x, bias, onto), twin(x, bias, onto))


@pytest.mark.parametrize("simd", SIMD)
@settings(max_examples=25)
@given(data=st.data())
def test_a_row_does_not_depend_on_its_company(simd: str, data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(TYPES))
    n, k = data.draw(st.integers(1, 50)), 32 * data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    product = Bf16Product(type, n, k, random_raw(rng, type, n, k), simd)
    x = random_rows(rng, data.draw(st.integers(2, 40)), k)
    cut = data.draw(st.integers(1, len(x) - 1))
    assert_same_bits(product(x), np.concatenate([product(x[:cut]), product(x[cut:])]))
    assert_same_bits(product(x)[:1], product(x[:1]))


@pytest.mark.parametrize("simd", [name for name in FAST if name == "amx"])
def test_more_rows_than_read_the_same_opened_weights(simd: str) -> None:
    rng = np.random.default_rng(3)
    product = Bf16Product(TensorType.Q4_1, 16, 576, random_raw(rng, TensorType.Q4_1, 16, 576), simd)
    x = random_rows(rng, 1535, 576)
    for row in (0, 495, 496, 1007, 1008, 1534):
        assert_same_bits(product(x)[row : row + 1], product(x[row : row + 1]))


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_large_weights_fit(type: TensorType, simd: str) -> None:
    """512 values of the largest weight there is, of either sign."""
    raw = random_raw(np.random.default_rng(4), type, 16, 512)
    fields = raw.view(LAYOUTS[type].dtype)
    fields["d"], fields["qs"] = 1, 0x00
    if type is TensorType.Q4_1:
        fields["m"] = 60000
    w = dequantize(raw, type, (16, 512))
    for sign in (1.0, -1.0):
        x = np.full((20, 512), sign * 3, np.float32)
        np.testing.assert_allclose(Bf16Product(type, 16, 512, raw, simd)(x), x @ w.T, rtol=4e-3)


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_spoils_nothing_else(simd: str, bad: float) -> None:
    rng = np.random.default_rng(5)
    raw = random_raw(rng, TensorType.Q4_1, 20, 1024)
    product = Bf16Product(TensorType.Q4_1, 20, 1024, raw, simd)
    x = random_rows(rng, 18, 1024)
    good = product(x)
    x[3, 700] = bad
    spoilt = product(x)
    assert np.isnan(spoilt[3]).all()
    assert_same_bits(np.delete(spoilt, 3, 0), np.delete(good, 3, 0))
    fields = raw.view(LAYOUTS[TensorType.Q4_1].dtype).reshape(20, -1)
    fields["d"][7, 9] = bad
    outputs = Bf16Product(TensorType.Q4_1, 20, 1024, raw, simd)(random_rows(rng, 18, 1024))
    assert np.isnan(outputs[:, 7]).all() and np.isfinite(np.delete(outputs, 7, 1)).all()


@pytest.mark.parametrize("simd", SIMD)
def test_zeros_and_tiny_values_give_zero(simd: str) -> None:
    product = Bf16Product(TensorType.Q4_0, 16, 64, np.zeros(2 * 18 * 16, np.uint8), simd)
    assert (product(random_rows(np.random.default_rng(6), 7, 64)) == 0).all()
    raw = random_raw(np.random.default_rng(6), TensorType.Q4_0, 16, 64)
    product = Bf16Product(TensorType.Q4_0, 16, 64, raw, simd)
    assert (product(np.full((7, 64), 1e-38, np.float32)) == 0).all()


def test_each_form_of_rows_is_refused_by_the_other_kind_of_weight() -> None:
    raw = random_raw(np.random.default_rng(7), TensorType.Q4_0, 16, 64)
    x, out = np.zeros((1, 64), np.float32), np.zeros((1, 16), np.float32)
    bf16, narrow = (matmul.pack(2, raw, 16, 64, "", None, b) for b in (True, False))
    with pytest.raises(ValueError, match="lack the bf16 rows that a q4_0 weight reads"):
        bf16.multiply(matmul.QuantizedRows(x), out)
    with pytest.raises(ValueError, match="lack the int8 blocks"):
        narrow.multiply(matmul.Bf16Rows(x), out)
    with pytest.raises(ValueError, match="no multiple of 32"):
        matmul.Bf16Rows(np.zeros((1, 40), np.float32))
