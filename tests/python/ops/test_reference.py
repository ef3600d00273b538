"""The reference operations against their equations in plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec, ModelSpec, RopeSpec
from pellucid.ops import backend
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.step import lower
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.types import TensorType

from . import oracle

Float32 = NDArray[np.float32]

OPS = ReferenceOps()
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 20)


def random(seed: int, *shape: int, spread: float = 1.0) -> Float32:
    return (spread * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def assert_close(found: Any, expected: Any, terms: int = 1) -> None:
    """Within what float32 loses over `terms` summands of the expected size."""
    expected = np.asarray(expected)
    allowed = 2.0**-22 * (4 + terms**0.5) * max(1.0, float(np.abs(expected).max(initial=0)))
    worst = float(np.abs(found - expected).max(initial=0))
    assert found.dtype == np.float32
    assert worst <= allowed, f"off by {worst:.3g} where float32 explains {allowed:.3g}"


@given(SEEDS, SIZES, SIZES, SIZES, st.booleans())
def test_linear(seed: int, rows: int, width: int, out: int, biased: bool) -> None:
    x, weight = random(seed, rows, width), random(seed + 1, out, width)
    bias = random(seed + 2, out) if biased else None
    expected = [oracle.linear(row, weight, bias) for row in x.tolist()]
    assert_close(OPS.linear(x, weight, bias), expected, width)


@given(SEEDS, SIZES, st.integers(2, 20), st.booleans(), st.sampled_from([1e-12, 1e-5, 0.1]))
def test_layer_norm(seed: int, rows: int, width: int, biased: bool, eps: float) -> None:
    x, weight = random(seed, rows, width), random(seed + 1, width)
    bias = random(seed + 2, width) if biased else None
    # Far from its neighbours, however they fell: the variance must be well above rounding.
    x[:, 0] = np.abs(x).max(axis=1) + 3.0
    expected = [oracle.layer_norm(row, weight, bias, eps) for row in x.tolist()]
    assert_close(OPS.layer_norm(x, weight, bias, eps), expected, 16 * width)


@given(SEEDS, SIZES, st.integers(1, 4), SIZES, st.sampled_from([1e-12, 1e-6, 0.1]))
def test_rms_norm_of_every_run(seed: int, rows: int, runs: int, width: int, eps: float) -> None:
    x, weight = random(seed, rows, runs * width), random(seed + 1, width)
    expected = [oracle.rms_norm(row, weight, eps) for row in x.tolist()]
    assert_close(OPS.rms_norm(x, weight, eps), expected, width)


# Each by itself: what is allowed near 0 must not grow with results far from it.
RANGES = [(-3, 3), (-12, 12), (-1e4, 1e4)]


@pytest.mark.parametrize("bounds", RANGES, ids=str)
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_gelu(name: str, bounds: tuple[float, float]) -> None:
    x = np.linspace(*bounds, 999, dtype=np.float32)[None]
    expected = [[getattr(oracle, name)(value) for value in x[0].tolist()]]
    assert_close(getattr(OPS, name)(x), expected)


@pytest.mark.parametrize("bounds", [(-3, 3), (-30, 30)], ids=str)
@pytest.mark.parametrize(
    ("name", "gate"), [("silu_mul", oracle.silu), ("gelu_tanh_mul", oracle.gelu_tanh)]
)
def test_gated(name: str, gate: Any, bounds: tuple[float, float]) -> None:
    x = np.linspace(*bounds, 600, dtype=np.float32)[None]
    up = random(1, *x.shape)
    expected = [[gate(g) * u for g, u in zip(x[0].tolist(), up[0].tolist(), strict=True)]]
    assert_close(getattr(OPS, name)(x, up), expected)


def test_silu_of_the_very_negative_is_zero_and_quiet() -> None:
    with np.errstate(all="raise", over="ignore", under="ignore"):
        y = OPS.silu_mul(np.full((1, 1), -1e30, np.float32), np.ones((1, 1), np.float32))
    assert y[0, 0] == 0.0


def test_scale_clamp_and_softcap() -> None:
    x = random(3, 4, 50, spread=20.0)
    assert_close(OPS.scale(x, 0.3), x.astype(np.float64) * 0.3)
    assert_close(OPS.clamp(x, 7.5), np.clip(x, -7.5, 7.5))
    expected = [[5.0 * math.tanh(value / 5.0) for value in row] for row in x.tolist()]
    assert_close(OPS.softcap(x, 5.0), expected)


def test_embedding_rows_and_split() -> None:
    table = random(4, 10, 6)
    ids = np.array([3, 3, 9, 0], np.int32)
    x = OPS.embedding(ids, table)
    np.testing.assert_array_equal(x, [table[3], table[3], table[9], table[0]])
    np.testing.assert_array_equal(OPS.take_rows(x, np.array([2, 0], np.int32)), x[[2, 0]])
    parts = OPS.split(x, (1, 3, 2))
    assert [part.shape for part in parts] == [(4, 1), (4, 3), (4, 2)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), x)


@given(SEEDS, st.integers(1, 6), st.integers(1, 6), st.booleans(), st.data())
def test_experts(seed: int, rows: int, n: int, normalize: bool, data: st.DataObject) -> None:
    used = data.draw(st.integers(1, n))
    d, ffn = 5, 4
    layer = _layer(n_experts=n, n_experts_used=used, normalize_expert_weights=normalize)
    x, router = random(seed, rows, d), random(seed + 1, rows, n, spread=2.0)
    gate, up, down = (
        random(seed + 2, n, ffn, d),
        random(seed + 3, n, ffn, d),
        random(seed + 4, n, d, ffn),
    )
    expected = [
        oracle.experts(row, logits, gate, up, down, used, normalize)
        for row, logits in zip(x.tolist(), router.tolist(), strict=True)
    ]
    assert_close(OPS.experts(x, router, gate, up, down, layer), expected, 8 * d * ffn)


def test_of_equally_likely_experts_the_first_is_taken() -> None:
    layer = _layer(n_experts=3, n_experts_used=1, normalize_expert_weights=True)
    x, gate, up, down = random(1, 2, 5), random(2, 3, 4, 5), random(3, 3, 4, 5), random(4, 3, 5, 4)
    y = OPS.experts(x, np.zeros((2, 3), np.float32), gate, up, down, layer)
    expected = [oracle.swiglu(row, gate[0], up[0], down[0]) for row in x.tolist()]
    assert_close(y, expected, 32)


@given(SEEDS, st.integers(1, 3), st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_rope(seed: int, heads: int, pairs: int, left_alone: int, interleaved: bool) -> None:
    head_dim = 2 * pairs + left_alone
    rope = RopeSpec(100.0, 2 * pairs, "interleaved" if interleaved else "half")
    positions = np.array([0, 1, 7, 500], np.int32)
    x = random(seed, 4, heads * head_dim)
    frequencies = [100.0 ** (-i / pairs) for i in range(pairs)]
    expected = [
        oracle.rope(row, int(p), head_dim, frequencies, interleaved=interleaved)
        for row, p in zip(x.tolist(), positions, strict=True)
    ]
    assert_close(OPS.rope(x, positions, head_dim, rope), expected)


def test_rope_turns_scores_by_distance_alone() -> None:
    rope = RopeSpec(10000.0, 8)
    q, k = random(1, 1, 8), random(2, 1, 8)

    def score(at: int, other: int) -> float:
        turned = [OPS.rope(x, np.array([p], np.int32), 8, rope) for x, p in ((q, at), (k, other))]
        return float(turned[0][0] @ turned[1][0])

    assert score(5, 2) == pytest.approx(score(1005, 1002), abs=1e-5)
    assert score(5, 2) != pytest.approx(score(5, 3), abs=1e-2)


@given(
    SEEDS,
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 12),
    st.none() | st.integers(1, 14),
    st.booleans(),
    st.none() | st.floats(0.5, 10.0),
)
def test_attention(
    seed: int,
    n_kv_heads: int,
    group: int,
    length: int,
    window: int | None,
    sloped: bool,
    cap: float | None,
) -> None:
    head_dim, n_heads = 4, n_kv_heads * group
    slopes = tuple(2.0 ** -(h + 1) for h in range(n_heads)) if sloped else ()
    layer = _layer(
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        window=window,
        alibi_slopes=slopes,
        attention_softcap=cap,
    )
    q = random(seed, length, n_heads * head_dim, spread=2.0)
    k, v = (random(seed + i, length, n_kv_heads * head_dim, spread=2.0) for i in (1, 2))
    expected = oracle.attention(
        q.tolist(),
        k.tolist(),
        v.tolist(),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        scale=0.5,
        window=window,
        slopes=slopes,
        cap=cap,
    )
    assert_close(_attend(q, k, v, layer), expected, 256)


def _attend(q: Float32, k: Float32, v: Float32, layer: LayerSpec) -> Float32:
    """One sequence from position 0, its pages in reverse."""
    length, page_size = len(q), 3
    n_pages = -(-length // page_size)
    span = Span(0, 0, (0,) * length, tuple(reversed(range(n_pages))))
    spec = ModelSpec("none", 8, 1, length, 1e-5, (layer,))
    step = lower(Plan((span,), page_size), OPS.new_cache(spec, n_pages, page_size))
    return OPS.attention(q, k, v, 0, layer, step)


def _layer(**changes: Any) -> LayerSpec:
    return LayerSpec(
        **{"n_heads": 1, "n_kv_heads": 1, "head_dim": 4, "ffn_dim": 4, "attention_scale": 0.5}
        | changes
    )


def test_load_gives_the_values_of_the_file() -> None:
    values = random(5, 3, 4)
    for kind, dtype in ((TensorType.F32, np.float32), (TensorType.F16, np.float16)):
        data = values.astype(dtype).reshape(-1).view(np.uint8)
        loaded = OPS.load(HostTensor("w", (3, 4), kind, data))
        np.testing.assert_array_equal(loaded, values.astype(dtype).astype(np.float32))


def test_backend_by_name() -> None:
    assert backend("reference").name == "reference"
    with pytest.raises(Exception, match="'gpu' is unknown: choose one of reference"):
        backend("gpu")
