"""Products that give keys and values read their input in twice the bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid.core.spec import RopeSpec
from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from pellucid.quant.types import TensorType
from tests.native.cases import SIMD, Float32, layer_spec, model_spec, random_rows, run_on, tensor

LAYER = layer_spec(n_heads=2, n_kv_heads=2, head_dim=32)
WIDTH = LAYER.n_heads * LAYER.head_dim
ROPE = RopeSpec(100.0, 32)


def forward(ops: Any, w: Any, step: Any) -> Any:
    """A sequence's first token sees nothing but itself, so what comes out is its value."""
    x = ops.embedding(step.tokens, w["x"])
    q, k, v = (ops.linear(x, w[name], w["b"]) for name in ("q", "k", "v"))
    q, k = (ops.rope(y, step.positions, LAYER.head_dim, ROPE) for y in (q, k))
    return ops.attention(q, k, v, 0, LAYER, step)


def plain(ops: Any, w: Any, step: Any) -> Any:
    return ops.linear(ops.embedding(step.tokens, w["x"]), w["v"], w["b"])


def weights(type: TensorType) -> dict[str, Any]:
    matrices = {n: tensor(n, random_rows(WIDTH, 576, i), type) for i, n in enumerate("qkv")}
    return {**matrices, "b": tensor("b", random_rows(1, WIDTH, 9)[0])}


def error_of(ops: Any, run: Any, rows: Float32, type: TensorType) -> float:
    """Of the first row, relative to the largest output."""
    spec = model_spec([LAYER])
    expected = run_on(ReferenceOps(), run, rows, weights(type), spec=spec)[0]
    actual = run_on(ops, run, rows, weights(type), spec=spec)[0]
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("type", [TensorType.Q4_1, TensorType.Q8_0])
def test_values_are_far_more_exact(simd: str, type: TensorType) -> None:
    ops = NativeOps(threads=2, kv_dtype="f32", simd=simd)
    rows = random_rows(3, 576, 5)
    coarse, fine = (error_of(ops, run, rows, type) for run in (plain, forward))
    # 8 bits round to 1/254 of a block's largest value, 16 bits to 1/254 of that.
    assert 1e-4 < coarse < 3e-2
    assert fine < coarse / 50


def test_fusing_and_threads_change_no_bit() -> None:
    rows, spec = random_rows(40, 576, 6), model_spec([LAYER])
    given = weights(TensorType.Q8_0)
    one = run_on(NativeOps(threads=1, fuse=False), forward, rows, given, spec=spec)
    two = run_on(NativeOps(threads=2), forward, rows, given, spec=spec)
    assert np.array_equal(one, two)


def test_numbers_that_are_none_stay_so() -> None:
    rows, spec = random_rows(2, 576, 7), model_spec([LAYER])
    rows[0, 3] = np.inf
    out = run_on(NativeOps(threads=1), forward, rows, weights(TensorType.Q8_0), spec=spec)
    assert np.isnan(out[0]).all()
