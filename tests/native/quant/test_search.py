"""The native searches beside their NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid import _native
from pellucid.quant.dequantize import dequantize
from pellucid.quant.quantize import QUANTIZED_TYPES, quantize
from pellucid.quant.search import NUMPY, Search, native_search
from pellucid.quant.types import TensorType

Floats = NDArray[np.float32]
NATIVE = native_search(_native.quant)
TYPES = sorted(QUANTIZED_TYPES)
KINDS = ("normal", "heavy", "positive", "sparse", "tiny", "zeros")


def tensor(kind: str) -> Floats:
    rng, shape = np.random.default_rng(KINDS.index(kind)), (16, 512)
    values = {
        "normal": lambda: rng.standard_normal(shape) * 0.02,
        "heavy": lambda: rng.standard_t(2, shape),
        "positive": lambda: rng.standard_normal(shape) * 0.01 + 3,
        "sparse": lambda: rng.standard_normal(shape) * (rng.random(shape) < 0.05),
        "tiny": lambda: rng.standard_normal(shape) * 1e-6,
        "zeros": lambda: np.zeros(shape),
    }[kind]()
    return values.astype(np.float32)


def squares(values: Floats, raw: NDArray[np.uint8], type: TensorType) -> NDArray[np.float64]:
    """Squared error of each super-block."""
    lost = values - dequantize(raw, type, values.shape)
    total: NDArray[np.float64] = np.square(lost.astype(np.float64)).reshape(-1, 256).sum(axis=1)
    return total


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_finds_what_numpy_finds(type: TensorType, kind: str, weighed: bool) -> None:
    values = tensor(kind)
    importance = np.random.default_rng(9).exponential(size=512).astype(np.float32)
    weights = importance if weighed else None
    raws = [quantize(values, type, weights, search) for search in (NUMPY, NATIVE)]
    numpy, native = (squares(values, raw, type) for raw in raws)
    # Sums in another order decide near ties otherwise, now for the better and now for the worse;
    # where values are nearly alike, or few, there is hardly anything but ties.
    if kind == "normal":
        assert np.isclose(native, numpy, rtol=1e-5).mean() >= 0.7
    many_ties = kind in ("positive", "sparse")
    assert native.sum() == pytest.approx(numpy.sum(), rel=0.2 if many_ties else 0.005, abs=1e-18)


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_every_instruction_set_gives_the_same_bits(
    type: TensorType, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = tensor("heavy")
    best = quantize(values, type, None, NATIVE)

    class Generic:
        def __getattr__(self, name: str) -> object:
            function = getattr(_native.quant, name)
            return lambda *arguments: function(*arguments, simd="generic")

    plain = quantize(values, type, None, native_search(Generic()))  # type: ignore[arg-type]
    np.testing.assert_array_equal(best, plain)


def test_arrays_that_do_not_fit_are_refused() -> None:
    x, d, q = np.ones((2, 32), np.float32), np.ones(2, np.float32), np.ones((2, 32), np.int8)
    with pytest.raises(ValueError, match="d has 1 elements, not 2"):
        _native.quant.symmetric_blocks(x, x, -8, 7, 8, [8.0], d[:1], q)
    with pytest.raises(ValueError, match="a row of x has 16 elements, not 32"):
        _native.quant.symmetric_blocks(x[:, :16].copy(), x, -8, 7, 8, [8.0], d, q)
    with pytest.raises(ValueError, match="w has 32 elements, not 64"):
        _native.quant.symmetric_blocks(x, x[:1], -8, 7, 8, [8.0], d, q)


@pytest.mark.parametrize("search", [NUMPY, NATIVE], ids=["numpy", "native"])
@pytest.mark.parametrize("type", [TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0])
def test_values_that_are_on_a_grid_find_one_as_good(type: TensorType, search: Search) -> None:
    """What was quantised before and kept in half precision loses no more than that took."""
    rng = np.random.default_rng(3)
    once = quantize((rng.standard_normal((64, 512)) * 0.02).astype(np.float32), type, None, search)
    exact = dequantize(once, type, (64, 512))
    halves = exact.astype(np.float16).astype(np.float32)
    again = quantize(halves, type, None, search)
    lost, least = squares(halves, again, type).sum(), np.square(halves - exact, dtype=float).sum()
    # A block's errors are weighed, so that now and then another grid seems as good.
    assert lost < 1.3 * least
