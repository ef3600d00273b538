"""Packed weights times rows: each instruction set against the generic twin, that against NumPy.

Every instruction set does the same arithmetic in the same order, so all comparisons among them are
by bits. Only the comparison of the generic twin with float64 has a tolerance, and it is derived.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid import _native
from pellucid.quant.dequantize import dequantize
from pellucid.quant.types import LAYOUTS, TensorType

matmul = _native.matmul
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

FLOAT_TYPES = [TensorType.F32, TensorType.F16, TensorType.BF16]
SIMPLE_TYPES = [TensorType[n] for n in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")]
SUPER_TYPES = [TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K]
TYPES = FLOAT_TYPES + SIMPLE_TYPES + SUPER_TYPES
BLOCK_TYPES = SIMPLE_TYPES + SUPER_TYPES
SIMD = [name for name, usable, _ in matmul.considered() if usable]
FAST = [name for name in SIMD if name != "generic"]

# As in matmul.h.
ACTIVATION_BLOCK = np.dtype(
    [
        ("q", "i1", 32),
        ("scale", "<f4"),
        ("scaled_sum", "<f4"),
        ("start", "<i4"),
        ("start_half", "<i4", 2),
        ("unused", "<i4", 3),
    ]
)
MAGIC_BITS = 0x4B400000
GROUP = 16


def one_block(type: TensorType) -> int:
    """The shortest row that the type allows, 8 for floats."""
    return max(LAYOUTS[type].elements, 8)


def random_raw(rng: np.random.Generator, type: TensorType, n: int, k: int) -> npt.NDArray[np.uint8]:
    """Bytes of an (n, k) tensor: random codes, finite scales of both signs."""
    layout = LAYOUTS[type]
    blocks = n * k // layout.elements
    raw = rng.integers(0, 256, blocks * layout.nbytes, dtype=np.uint8)
    fields = raw.view(layout.dtype)
    for name in {"d", "m", "dmin"} & set(layout.dtype.names or ()):
        fields[name] = (0.01 * rng.standard_normal(blocks)).astype(np.float16)
    if type in FLOAT_TYPES:
        values = rng.standard_normal(blocks).astype(np.float32)
        bf16 = (values.view(np.uint32) >> 16).astype(np.uint16)
        fields["x"] = bf16 if type is TensorType.BF16 else values.astype(fields["x"].dtype)
    return raw


def random_rows(rng: np.random.Generator, rows: int, k: int) -> Floats:
    return rng.standard_normal((rows, k)).astype(np.float32)


def quantized(x: Floats, simd: str = "generic") -> npt.NDArray[np.void]:
    blocks = np.frombuffer(matmul.QuantizedRows(x, simd).bytes(), ACTIVATION_BLOCK)
    return blocks.reshape(x.shape[0], -1)


@dataclass
class Product:
    """A weight and its product with anything, on one instruction set."""

    type: TensorType
    n: int
    k: int
    raw: npt.NDArray[np.uint8]
    simd: str = "generic"

    def __post_init__(self) -> None:
        self.weight = matmul.pack(int(self.type), self.raw, self.n, self.k, self.simd)

    def rows(self, x: Floats) -> object:
        return matmul.QuantizedRows(x, self.simd) if self.weight.activations == "int8" else x

    def __call__(self, x: Floats, bias: Floats | None = None, onto: Floats | None = None) -> Floats:
        out = np.full((x.shape[0], self.n), np.nan, np.float32) if onto is None else onto.copy()
        self.weight.multiply(self.rows(x), out, bias, onto is not None)
        return out


def assert_same_bits(got: Floats, want: Floats) -> None:
    """Equal bits; any two NaN are equal."""
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(
        np.where(nan, 0, got.view(np.int32)), np.where(nan, 0, want.view(np.int32))
    )


# The generic twin against NumPy.


def exact_product(product: Product, x: Floats) -> tuple[Doubles, Doubles]:
    """float64 [rows, n]: the product of the same weights and activations, and how far float32 may
    stray from it.

    A weight is d * code + m, and both parts are summed. Each rounding is at most u = 2^-24 of a
    partial sum, which is at most the sum of the terms' magnitudes; a block has at most 4.
    """
    w = dequantize(product.raw, product.type, (product.n, product.k)).astype(np.float64)
    a = x.astype(np.float64)
    roundings = product.k + 2
    if product.weight.activations == "int8":
        blocks = quantized(x)
        a = (blocks["q"] * blocks["scale"][..., None].astype(np.float64)).reshape(a.shape)
        roundings = 4 * (product.k // 32)
    m = minima(product)
    return a @ w.T, 2.0**-24 * roundings * np.abs(a) @ (np.abs(w - m) + np.abs(m)).T


def minima(product: Product) -> Doubles:
    """float64 [n, k]: m of each weight: what it would be if its code were zero."""
    if not {"m", "dmin"} & set(LAYOUTS[product.type].dtype.names or ()):
        return np.zeros((product.n, product.k))
    raw = product.raw.copy()
    fields = raw.view(LAYOUTS[product.type].dtype)
    for name in {"qs", "qh"} & set(fields.dtype.names or ()):
        fields[name] = 0
    return dequantize(raw, product.type, (product.n, product.k)).astype(np.float64)


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_generic_is_the_product_of_what_is_stored(type: TensorType) -> None:
    rng = np.random.default_rng(int(type))
    product = Product(type, 37, 768, random_raw(rng, type, 37, 768))
    x = random_rows(rng, 5, 768)
    want, tolerance = exact_product(product, x)
    error = np.abs(product(x) - want)
    assert (error <= tolerance).all(), (error / tolerance).max()
    assert (np.abs(want) > tolerance).mean() > 0.9  # all zeros would not pass


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_the_tolerance_sees_one_wrong_code(type: TensorType) -> None:
    rng = np.random.default_rng(int(type))
    raw = random_raw(rng, type, 16, 256)
    x = random_rows(rng, 1, 256)
    x[0, 3] = 3.0
    want, tolerance = exact_product(Product(type, 16, 256, raw), x)
    layout = LAYOUTS[type]
    code = {"x": 3 * layout.nbytes, "qs": 3, "ql": 3}
    field = next(name for name in code if name in (layout.dtype.names or ()))
    place = code[field] + (layout.dtype.fields[field][1] if field != "x" else layout.nbytes - 1)
    wrong = raw.copy()
    wrong[place] ^= 8
    assert abs(Product(type, 16, 256, wrong)(x)[0, 0] - want[0, 0]) > tolerance[0, 0]


# Every instruction set against the generic twin.


@pytest.mark.parametrize("simd", FAST)
@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_same_bits_as_generic(type: TensorType, simd: str) -> None:
    rng = np.random.default_rng(int(type))
    for n, k in [(1, one_block(type)), (15, 256), (16, 512), (41, 768)]:
        raw = random_raw(rng, type, n, k)
        ours, twin = Product(type, n, k, raw, simd), Product(type, n, k, raw)
        bias = random_rows(rng, 1, n)[0]
        for rows in [*range(1, 14), 25]:
            x = random_rows(rng, rows, k)
            onto = random_rows(rng, rows, n)
            assert_same_bits(ours(x), twin(x))
            assert_same_bits(ours(x, bias), twin(x, bias))
            assert_same_bits(ours(x, bias, onto), twin(x, bias, onto))


@pytest.mark.parametrize("simd", SIMD)
def test_floats_of_odd_length(simd: str) -> None:
    rng = np.random.default_rng(5)
    for type in FLOAT_TYPES:
        for k in (1, 2, 7, 33):
            raw = random_raw(rng, type, 18, k)
            x = random_rows(rng, 4, k)
            want, tolerance = exact_product(Product(type, 18, k, raw), x)
            ours = Product(type, 18, k, raw, simd)(x)
            assert (np.abs(ours - want) <= tolerance).all()
            assert_same_bits(ours, Product(type, 18, k, raw)(x))


@pytest.mark.parametrize("simd", SIMD)
def test_bias_and_residual_are_added_after_the_sum(simd: str) -> None:
    rng = np.random.default_rng(6)
    product = Product(TensorType.Q4_1, 21, 64, random_raw(rng, TensorType.Q4_1, 21, 64), simd)
    x, bias, onto = random_rows(rng, 3, 64), random_rows(rng, 1, 21)[0], random_rows(rng, 3, 21)
    assert_same_bits(product(x, bias), product(x) + bias)
    assert_same_bits(product(x, None, onto), product(x) + onto)
    assert_same_bits(product(x, bias, onto), (product(x) + bias) + onto)


# The bits of a row do not depend on its company.


@pytest.mark.parametrize("simd", SIMD)
@settings(max_examples=25)
@given(data=st.data())
def test_batch_invariance(simd: str, data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(TYPES))
    n = data.draw(st.integers(1, 70))
    k = 256 * data.draw(st.integers(1, 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    product = Product(type, n, k, random_raw(rng, type, n, k), simd)
    x = random_rows(rng, 24, k)
    alone = np.concatenate([product(x[r : r + 1]) for r in range(len(x))])
    order = data.draw(st.permutations(range(len(x))))[: data.draw(st.integers(1, len(x)))]
    cuts = data.draw(st.lists(st.integers(0, product.weight.n_groups), max_size=3))
    out = np.full((len(order), n), np.nan, np.float32)
    edges = sorted({0, product.weight.n_groups, *cuts})
    for begin, end in pairwise(edges):
        product.weight.multiply(product.rows(x[list(order)]), out, None, False, begin, end)
    assert_same_bits(out, alone[list(order)])


@pytest.mark.parametrize("simd", SIMD)
def test_many_rows_take_more_than_one_strip(simd: str) -> None:
    rng = np.random.default_rng(7)
    product = Product(TensorType.Q8_0, 16, 2048, random_raw(rng, TensorType.Q8_0, 16, 2048), simd)
    x = random_rows(rng, 301, 2048)
    assert_same_bits(product(x)[[0, 150, 300]], product(x[[0, 150, 300]]))


@pytest.mark.parametrize("simd", FAST)
@pytest.mark.parametrize("type", BLOCK_TYPES, ids=lambda t: t.name)
def test_many_rows_have_the_bits_of_few(type: TensorType, simd: str) -> None:
    """Where tiles pay; from one block of K to more than are opened at once."""
    rng = np.random.default_rng(14)
    for k, rows in [(one_block(type), 37), (512, 32), (1536, 81), (768, 150)]:
        product = Product(type, 37, k, random_raw(rng, type, 37, k), simd)
        x, bias = random_rows(rng, rows, k), random_rows(rng, 1, 37)[0]
        onto = random_rows(rng, rows, 37)
        few = [product(x[i : i + 7], bias, onto[i : i + 7]) for i in range(0, rows, 7)]
        assert_same_bits(product(x, bias, onto), np.concatenate(few))


@pytest.mark.parametrize("simd", SIMD)
def test_touches_only_the_outputs_of_its_groups(simd: str) -> None:
    rng = np.random.default_rng(8)
    product = Product(TensorType.Q4_0, 37, 32, random_raw(rng, TensorType.Q4_0, 37, 32), simd)
    for begin, end in [(0, 1), (1, 2), (2, 3), (3, 3)]:
        out = np.full((3, 45), 7.0, np.float32)
        product.weight.multiply(product.rows(random_rows(rng, 3, 32)), out, None, False, begin, end)
        touched = np.zeros(45, bool)
        touched[begin * GROUP : min(end * GROUP, 37)] = True
        assert (out[:, ~touched] == 7.0).all()
        assert (out[:, touched] != 7.0).all()


def test_weights_of_an_arena_outlive_it() -> None:
    rng = np.random.default_rng(13)
    arena = matmul.Arena()
    raws = [random_raw(rng, TensorType.F32, 2048, 1024) for _ in range(5)]  # 40 MB: two pieces
    weights = [matmul.pack(0, raw, 2048, 1024, "", arena) for raw in raws]
    del arena
    x = random_rows(rng, 1, 1024)
    for raw, weight in zip(raws, weights, strict=True):
        out = np.zeros((1, 2048), np.float32)
        weight.multiply(x, out)
        assert_same_bits(out, Product(TensorType.F32, 2048, 1024, raw, SIMD[-1])(x))


@pytest.mark.parametrize("threads", [1, 3])
def test_many_packed_together_are_each_as_packed_alone(threads: int) -> None:
    rng = np.random.default_rng(14)
    # One of many pieces, one of a part of a group, one of every type.
    shapes = [(TensorType.Q8_0, 4100, 256), (TensorType.F32, 3, 8)]
    shapes += [(type, 37, 512) for type in TYPES]
    raws = [random_raw(rng, *shape) for shape in shapes]
    given = [(int(t), raw, n, k, False, False) for (t, n, k), raw in zip(shapes, raws, strict=True)]
    packed = matmul.pack_all(given, _native.program.Pool(threads), SIMD[-1], matmul.Arena())
    for (type, n, k), raw, weight in zip(shapes, raws, packed, strict=True):
        alone = Product(type, n, k, raw, SIMD[-1])
        x = random_rows(rng, 2, k)
        out = np.zeros((2, n), np.float32)
        weight.multiply(alone.rows(x), out)
        assert_same_bits(out, alone(x))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux counts pages of a mapping")
def test_pages_of_a_mapped_weight_are_given_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(15)
    n, k, size = 8192, 512, 8192 * 512 * 4
    raw = random_raw(rng, TensorType.F32, n, k)
    (tmp_path / "weights").write_bytes(bytes(100) + raw.tobytes())
    file = np.memmap(tmp_path / "weights", np.uint8, "r")
    assert int(file.sum(dtype=np.uint64)) == int(raw.sum(dtype=np.uint64))  # all pages are there
    resident = resident_bytes(tmp_path / "weights")
    assert resident >= size
    given = (0, file[100:], n, k, True, False)
    (weight,) = matmul.pack_all([given], _native.program.Pool(2))
    assert resident_bytes(tmp_path / "weights") < size // 8
    np.testing.assert_array_equal(file[100:], raw)
    x, out = random_rows(rng, 1, k), np.zeros((1, n), np.float32)
    weight.multiply(x, out)
    assert_same_bits(out, Product(TensorType.F32, n, k, raw, SIMD[-1])(x))


def resident_bytes(path: Path) -> int:
    """Of a file's mappings in this process, the bytes that are in memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.endswith(str(path))]
    rss = (next(line for line in lines[i:] if line.startswith("Rss:")) for i in starts)
    return sum(1024 * int(line.split()[1]) for line in rss)


# Extremes.


def extreme_codes(type: TensorType, fill: int) -> npt.NDArray[np.uint8]:
    """17 rows of 256 whose every code bit is that of `fill`, with scales 1 / 8."""
    layout = LAYOUTS[type]
    raw = np.full(17 * 256 // layout.elements * layout.nbytes, fill, np.uint8)
    fields = raw.view(layout.dtype)
    for name in {"d", "m", "dmin"} & set(layout.dtype.names or ()):
        fields[name] = 0.125
    return raw


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("type", BLOCK_TYPES, ids=lambda t: t.name)
def test_sums_do_not_overflow(type: TensorType, simd: str) -> None:
    x = np.stack([np.full(256, 127.0), np.full(256, -127.0), np.tile([127.0, -127.0], 128)])
    x = x.astype(np.float32)
    for fill in (0x00, 0xFF, 0x7F, 0x80, 0x0F, 0xF0):
        raw = extreme_codes(type, fill)
        w = dequantize(raw, type, (17, 256)).astype(np.float64)
        # Scales are powers of two and sums below 2^24 units of 1/8, so nothing is rounded, except
        # where the 8-bit scales of q6_k make larger ones.
        tolerance = 2.0**-22 if type is TensorType.Q6_K else 0.0
        np.testing.assert_allclose(Product(type, 17, 256, raw, simd)(x), x @ w.T, rtol=tolerance)


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("type", BLOCK_TYPES, ids=lambda t: t.name)
def test_zero_scales_and_zero_rows_give_zero(type: TensorType, simd: str) -> None:
    rng = np.random.default_rng(9)
    raw = random_raw(rng, type, 17, 256)
    assert (Product(type, 17, 256, raw, simd)(np.zeros((3, 256), np.float32)) == 0).all()
    fields = raw.view(LAYOUTS[type].dtype)
    for name in {"d", "m", "dmin"} & set(fields.dtype.names or ()):
        fields[name] = 0
    assert (Product(type, 17, 256, raw, simd)(random_rows(rng, 3, 256)) == 0).all()


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("type", BLOCK_TYPES, ids=lambda t: t.name)
def test_largest_and_smallest_scales(type: TensorType, simd: str) -> None:
    rng = np.random.default_rng(10)
    raw = random_raw(rng, type, 16, 512)
    fields = raw.view(LAYOUTS[type].dtype)
    fields["d"][::2] = 65504.0
    fields["d"][1::2] = 2.0**-24
    x = random_rows(rng, 3, 512)
    product = Product(type, 16, 512, raw)
    want, tolerance = exact_product(product, x)
    assert (np.abs(product(x) - want) <= tolerance).all()
    assert_same_bits(Product(type, 16, 512, raw, simd)(x), product(x))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("simd", SIMD)
def test_a_row_that_is_not_finite_spoils_no_other(simd: str, bad: float) -> None:
    rng = np.random.default_rng(11)
    for type in (TensorType.Q4_1, TensorType.Q6_K, TensorType.F16):
        product = Product(type, 20, 256, random_raw(rng, type, 20, 256), simd)
        x = random_rows(rng, 5, 256)
        clean = product(x)
        x[2, 77] = bad
        spoilt = product(x)
        assert not np.isfinite(spoilt[2]).any()
        assert type in FLOAT_TYPES or np.isnan(spoilt[2]).all()
        others = [0, 1, 3, 4]
        assert_same_bits(spoilt[others], clean[others])


# Quantised rows.


def blocks_by_numpy(x: Floats) -> npt.NDArray[np.void]:
    rows, k = x.shape
    v = x.reshape(rows, k // 32, 32)
    blocks = np.zeros((rows, k // 32), ACTIVATION_BLOCK)
    largest = np.abs(v).max(axis=-1)
    finite = np.isfinite(v).all(axis=-1)
    zero = ~finite | (largest < np.float32(2.0**-100))
    with np.errstate(all="ignore"):
        q = np.rint(v * (np.float32(127) / largest)[..., None])
    q = np.where(zero[..., None], 0, q).astype(np.int32)
    sums = q.reshape(rows, k // 32, 2, 16).sum(axis=-1)
    blocks["q"] = q
    blocks["scale"] = np.where(finite, np.where(zero, 0, largest / np.float32(127)), np.nan)
    with np.errstate(over="ignore"):
        blocks["scaled_sum"] = blocks["scale"] * sums.sum(axis=-1).astype(np.float32)
    blocks["start"] = MAGIC_BITS - 128 * sums.sum(axis=-1)
    blocks["start_half"] = MAGIC_BITS - 128 * sums
    return blocks


@pytest.mark.parametrize("simd", SIMD)
@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    exponent=st.integers(-149, 127),
    special=st.sampled_from([None, 0.0, -0.0, np.inf, np.nan, 3.4e38, 2.0**-100, 1e-45]),
)
def test_quantized_rows(simd: str, seed: int, exponent: int, special: float | None) -> None:
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.uniform(-1, 1, (2, 96)).astype(np.float32), exponent)
    if special is not None:
        x[1, rng.integers(96)] = special
    got, want = quantized(x, simd), blocks_by_numpy(x)
    for name in ("q", "start", "start_half", "unused"):
        np.testing.assert_array_equal(got[name], want[name])
    for name in ("scale", "scaled_sum"):
        assert_same_bits(got[name].copy(), want[name])


# What is refused.


@pytest.mark.parametrize("type", BLOCK_TYPES, ids=lambda t: t.name)
def test_refuses_rows_that_are_no_whole_blocks(type: TensorType) -> None:
    raw = np.zeros(1000, np.uint8)
    with pytest.raises(
        ValueError, match=rf"k = 40,.*{LAYOUTS[type].elements}.*{type.name.lower()}"
    ):
        matmul.pack(int(type), raw, 4, 40)


def test_refuses_what_does_not_fit() -> None:
    rng = np.random.default_rng(12)
    product = Product(TensorType.Q4_0, 20, 64, random_raw(rng, TensorType.Q4_0, 20, 64))
    weight, rows = product.weight, product.rows(random_rows(rng, 2, 64))
    out, pool = np.zeros((2, 20), np.float32), _native.program.Pool(1)
    refused = [
        ("k = 96.*k = 64", lambda: weight.multiply(product.rows(random_rows(rng, 2, 96)), out)),
        ("int8 blocks", lambda: weight.multiply(random_rows(rng, 2, 64), out)),
        ("out has 3 rows", lambda: weight.multiply(rows, np.zeros((3, 20), np.float32))),
        ("19 columns.*n_out = 20", lambda: weight.multiply(rows, np.zeros((2, 19), np.float32))),
        ("bias has 19", lambda: weight.multiply(rows, out, np.zeros(19, np.float32))),
        (r"groups \[0, 3\)", lambda: weight.multiply(rows, out, None, False, 0, 3)),
        (r"groups \[2, 1\)", lambda: weight.multiply(rows, out, None, False, 2, 1)),
        ("k = 40", lambda: matmul.QuantizedRows(random_rows(rng, 2, 40))),
        ("raw has 719 bytes", lambda: matmul.pack(2, np.zeros(719, np.uint8), 20, 64)),
        ("n_out = 0", lambda: matmul.pack(2, np.zeros(0, np.uint8), 0, 64)),
        ("k = 0", lambda: matmul.pack(2, np.zeros(0, np.uint8), 1, 0)),
        ("type 10", lambda: matmul.pack(10, np.zeros(0, np.uint8), 1, 256)),
        (
            "type 10",
            lambda: matmul.pack_all([(10, np.zeros(0, np.uint8), 1, 256, False, False)], pool),
        ),
        ("unknown instruction set", lambda: matmul.pack(2, product.raw, 20, 64, "sse9")),
    ]
    for message, call in refused:
        with pytest.raises(ValueError, match=message):
            call()


def test_refuses_float_rows_of_other_kinds() -> None:
    weight = Product(TensorType.F32, 2, 8, np.zeros(64, np.uint8)).weight
    out = np.zeros((1, 2), np.float32)
    for x in (
        np.zeros((1, 8)),
        np.zeros(8, np.float32),
        np.zeros((1, 16), np.float32)[:, ::2],
        None,
    ):
        with pytest.raises(TypeError):
            weight.multiply(x, out)


# What was chosen.


def in_fresh_process(simd: str) -> subprocess.CompletedProcess[str]:
    code = "from pellucid import _native; print(_native.matmul.chosen())"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PELLUCID_SIMD": simd},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_best_usable_is_chosen_unless_asked() -> None:
    assert in_fresh_process("").stdout.strip() == SIMD[-1]
    assert in_fresh_process("generic").stdout.strip() == "generic"


def test_asking_for_what_is_not_there_is_an_error() -> None:
    unusable = [name for name, usable, _ in matmul.considered() if not usable]
    for name in [*unusable, "sse9"]:
        answer = in_fresh_process(name)
        assert answer.returncode
        assert (
            f"instruction set {name}" in answer.stderr or "unknown instruction set" in answer.stderr
        )


def test_says_why() -> None:
    for name, usable, why in matmul.considered():
        assert why
        assert usable == (" lacks " not in why), name
