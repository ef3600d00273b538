"""Every operation of the native backend against the reference, and each instruction set against the
generic twin, by bits."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.core.spec import RopeScaling, RopeSpec
from pellucid.ops.native import NativeOps
from pellucid.ops.native.graph import TOKENS
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.dequantize import dequantize
from pellucid.quant.types import LAYOUTS, TensorType, byte_count
from tests.native.cases import (
    SIMD,
    Forward,
    assert_close,
    layer_spec,
    random_rows,
    run_on,
    same_bits,
    tensor,
)

EPS = float(np.finfo(np.float32).eps)
WIDTH = 80  # five registers; other widths where tails matter


def unary(name: str, *numbers: float) -> Forward:
    return lambda ops, w, step: getattr(ops, name)(ops.embedding(step.tokens, w["x"]), *numbers)


def binary(name: str) -> Forward:
    def forward(ops, w, step):  # type: ignore[no-untyped-def]
        halves = ops.split(ops.embedding(step.tokens, w["x"]), (WIDTH // 2, WIDTH // 2))
        return getattr(ops, name)(*halves)

    return forward


def plus(ops, w, step):  # type: ignore[no-untyped-def]
    a, b = ops.split(ops.embedding(step.tokens, w["x"]), (WIDTH // 2, WIDTH // 2))
    return a + b


def norm(ops, w, step):  # type: ignore[no-untyped-def]
    return ops.rms_norm(ops.embedding(step.tokens, w["x"]), w["w"], 1e-5)


def layer_norm(ops, w, step):  # type: ignore[no-untyped-def]
    return ops.layer_norm(ops.embedding(step.tokens, w["x"]), w["w"], w.get("b"), 1e-5)


def linear(ops, w, step):  # type: ignore[no-untyped-def]
    return ops.linear(ops.embedding(step.tokens, w["x"]), w["w"], w.get("b"))


def vector(n: int, seed: int = 1) -> np.ndarray:
    return 1.0 + 0.3 * np.random.default_rng(seed).standard_normal(n)


ELEMENTWISE = {
    "gelu": (unary("gelu"), 4),
    "gelu_tanh": (unary("gelu_tanh"), 4),
    "silu_mul": (binary("silu_mul"), 8),
    "gelu_tanh_mul": (binary("gelu_tanh_mul"), 8),
    "add": (plus, 0),
    "scale": (unary("scale", 0.37), 0),
    "clamp": (unary("clamp", 0.8), 0),
    "softcap": (unary("softcap", 3.0), 4),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("scale", [0.02, 1.0, 20.0])
def test_elementwise(name: str, scale: float) -> None:
    """Within a few units in the last place of the largest value."""
    forward, units = ELEMENTWISE[name]
    x = random_rows(7, WIDTH, scale=scale)
    expected = run_on(ReferenceOps(), forward, x)
    actual = run_on(NativeOps(threads=1), forward, x)
    assert_close(actual, expected, units * EPS * float(np.abs(expected).max()))


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "softcap"])
def test_elementwise_at_the_ends_of_float32(name: str) -> None:
    forward, _ = ELEMENTWISE[name]
    ends = np.array([[0.0, -0.0, 1e-38, -1e-38, 1e-20, 30.0, -30.0, 100.0, -100.0, 1e10, -1e10]])
    x = np.resize(ends.astype(np.float32), (1, WIDTH))
    expected = run_on(ReferenceOps(), forward, x)
    actual = run_on(NativeOps(threads=1), forward, x)
    assert np.all(np.abs(actual - expected) <= 1e-7 + 4 * EPS * np.abs(expected))


def test_not_a_number_stays_one_and_stays_in_its_row() -> None:
    x = random_rows(3, WIDTH)
    x[1, 5] = np.nan
    for name in ("gelu", "gelu_tanh", "silu_mul", "softcap"):
        y = run_on(NativeOps(threads=1), ELEMENTWISE[name][0], x)
        assert np.isnan(y[1, 5 % y.shape[1]])
        assert np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize(("width", "n"), [(576, 576), (80, 16), (72, 72), (7, 7), (48, 12)])
def test_rms_norm(width: int, n: int) -> None:
    x, weights = random_rows(5, width), {"w": tensor("w", vector(n))}
    expected = run_on(ReferenceOps(), norm, x, weights)
    assert_close(
        run_on(NativeOps(threads=1), norm, x, weights), expected, 8 * EPS * np.abs(expected).max()
    )


@pytest.mark.parametrize("width", [576, 80, 7])
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_norm(width: int, with_bias: bool) -> None:
    x, weights = random_rows(5, width) + 3.0, {"w": tensor("w", vector(width))}
    if with_bias:
        weights["b"] = tensor("b", vector(width, 2))
    expected = run_on(ReferenceOps(), layer_norm, x, weights)
    # The mean is subtracted from values a few times its size.
    tolerance = 64 * EPS * float(np.abs(expected).max())
    assert_close(run_on(NativeOps(threads=1), layer_norm, x, weights), expected, tolerance)


ROPES = {
    "half": RopeSpec(10000.0, 32),
    "interleaved": RopeSpec(500000.0, 32, "interleaved"),
    "partial": RopeSpec(10000.0, 20, "half"),
    "partial interleaved": RopeSpec(10000.0, 10, "interleaved"),
    "dynamic": RopeSpec(10000.0, 32, "half", RopeScaling("dynamic", 4.0, 32)),
    "yarn": RopeSpec(10000.0, 32, "interleaved", RopeScaling("yarn", 4.0, 64)),
}


@pytest.mark.parametrize("kind", ROPES)
def test_rope(kind: str) -> None:
    """Also past the positions whose angles are computed at first."""

    def forward(ops, w, step):  # type: ignore[no-untyped-def]
        return ops.rope(ops.embedding(step.tokens, w["x"]), step.positions, 32, ROPES[kind])

    x = random_rows(90, 96)
    for start in (0, 1000):
        expected = run_on(ReferenceOps(), forward, x, start=start)
        actual = run_on(NativeOps(threads=1), forward, x, start=start)
        assert_close(actual, expected, 4 * EPS * float(np.abs(expected).max()))


@pytest.mark.parametrize("k", [64, 40])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_of_float_weights(k: int, with_bias: bool) -> None:
    weights = {"w": tensor("w", random_rows(50, k, 3))}
    if with_bias:
        weights["b"] = tensor("b", random_rows(1, 50, 4)[0])
    x = random_rows(9, k)
    expected = run_on(ReferenceOps(), linear, x, weights)
    bound = float((np.abs(x) @ np.abs(random_rows(50, k, 3)).T).max())  # of any rounding order
    assert_close(run_on(NativeOps(threads=1), linear, x, weights), expected, 8 * EPS * bound)


@pytest.mark.parametrize("type", [TensorType.Q4_0, TensorType.Q8_0, TensorType.Q5_1])
def test_linear_of_quantised_weights(type: TensorType) -> None:
    """The only difference is that activations are int8: half a step, 1/254 of a block's largest."""
    host = tensor("w", random_rows(48, 96, 3), type)
    x = random_rows(9, 96)
    expected = run_on(ReferenceOps(), linear, x, {"w": host})
    largest = np.repeat(np.abs(x.reshape(9, 3, 32)).max(2), 32, axis=1)
    weight = dequantize(host.data, host.type, host.shape)
    bound = largest @ np.abs(weight).T / 254 * 1.01  # [9, 48]
    actual = run_on(NativeOps(threads=1), linear, x, {"w": host})
    assert np.all(np.abs(actual - expected) <= bound)
    assert np.abs(actual - expected).max() < 0.02 * np.abs(expected).max()


READ_BY_ROWS = [
    TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.Q4_0, TensorType.Q4_1,
    TensorType.Q5_0, TensorType.Q5_1, TensorType.Q8_0, TensorType.Q4_K, TensorType.Q5_K,
    TensorType.Q6_K,
]  # fmt: skip


@pytest.mark.parametrize("type", READ_BY_ROWS)
def test_embedding_is_exact(type: TensorType) -> None:
    """Any bytes are a tensor; scales that are not finite are left out."""
    shape = (19, 256)
    rng = np.random.default_rng(int(type))
    data = rng.integers(0, 256, byte_count(type, shape)).astype(np.uint8)
    expected = dequantize(data, type, shape)
    finite = np.isfinite(expected)
    host = HostTensor("t", shape, type, data)

    def forward(ops, w, step):  # type: ignore[no-untyped-def]
        return ops.embedding(step.tokens, w["t"])

    actual = run_on(NativeOps(threads=1), forward, random_rows(19, 4), {"t": host})
    assert finite.mean() > 0.9
    assert same_bits(actual[finite], expected[finite])


@pytest.mark.parametrize("type", [TensorType.Q2_K, TensorType.IQ4_NL, TensorType.MXFP4])
def test_types_without_kernels_are_kept_in_half_precision(type: TensorType) -> None:
    shape = (32, 256)
    raw = np.zeros(byte_count(type, shape), np.uint8)
    blocks = raw.view(LAYOUTS[type].dtype)
    rng = np.random.default_rng(5)
    for field in LAYOUTS[type].dtype.names or ():
        values = rng.integers(0, 100, blocks[field].shape)
        if blocks[field].dtype.base == np.float16:
            values = values / 1000
        blocks[field] = 120 if field == "e" else values
    host = HostTensor("w", shape, type, raw)
    x = random_rows(6, 256)
    ops = NativeOps(threads=1)
    expected = run_on(ReferenceOps(), linear, x, {"w": host})
    bound = np.abs(x) @ np.abs(dequantize(raw, type, shape)).T
    assert np.all(np.abs(run_on(ops, linear, x, {"w": host}) - expected) <= bound * 2**-11)
    weight = ops.load(host)
    weight.packed()
    assert weight.stored_as is TensorType.F16


def experts(ops, w, step):  # type: ignore[no-untyped-def]
    x = ops.embedding(step.tokens, w["x"])
    layer = layer_spec(n_experts=6, n_experts_used=2, normalize_expert_weights=True)
    return ops.experts(x, ops.linear(x, w["router"]), w["gate"], w["up"], w["down"], layer)


def expert_weights(type: TensorType) -> dict:
    rng = np.random.default_rng(3)
    shapes = {"gate": (6, 96, 64), "up": (6, 96, 64), "down": (6, 64, 96)}
    weights = {
        name: tensor(name, 0.2 * rng.standard_normal(shape), type) for name, shape in shapes.items()
    }
    return weights | {"router": tensor("router", rng.standard_normal((6, 64)))}


@pytest.mark.parametrize("type", [TensorType.Q8_0, TensorType.IQ4_NL])
def test_experts_stored_one_by_one_are_the_same(type: TensorType) -> None:
    x, weights = random_rows(5, 64), expert_weights(TensorType.F32)
    rng = np.random.default_rng(9)
    apart = dict(weights)
    for name in ("gate", "up", "down"):
        shape = weights[name].shape
        raw = rng.integers(0, 30, byte_count(type, shape), np.uint8)  # d stays small and finite
        weights[name] = HostTensor(name, shape, type, raw)
        parts = tuple(np.split(raw, shape[0]))
        apart[name] = HostTensor(name, shape, type, np.empty(0, np.uint8), None, parts)
        assert apart[name].nbytes == weights[name].nbytes
    for ops in NativeOps(threads=2), ReferenceOps():
        together = run_on(ops, experts, x, weights)
        assert np.isfinite(together).all() and together.any()
        np.testing.assert_array_equal(run_on(ops, experts, x, apart), together)


def test_experts() -> None:
    x, weights = random_rows(33, 64), expert_weights(TensorType.F32)
    expected = run_on(ReferenceOps(), experts, x, weights)
    actual = run_on(NativeOps(threads=2), experts, x, weights)
    assert_close(actual, expected, 64 * EPS * float(np.abs(expected).max()))


def test_a_row_of_experts_does_not_depend_on_the_others() -> None:
    x, weights = random_rows(33, 64), expert_weights(TensorType.Q8_0)
    together = run_on(NativeOps(threads=2), experts, x, weights)
    alone = [run_on(NativeOps(threads=1), experts, x[i : i + 1], weights) for i in range(33)]
    assert same_bits(together, np.concatenate(alone))


def test_take_rows_and_split() -> None:
    def forward(ops, w, step):  # type: ignore[no-untyped-def]
        x = ops.embedding(step.tokens, w["x"])
        a, b = ops.split(x, (50, 30))
        return ops.take_rows(ops.split(b, (10, 20))[1] + ops.split(a, (30, 20))[1], step.logit_rows)

    x, rows = random_rows(9, 80), [8, 2, 2, 0]
    y = run_on(NativeOps(threads=2), forward, x, logit_rows=rows)
    assert same_bits(y, (x[:, 60:] + x[:, 30:50])[rows])
    assert run_on(NativeOps(threads=2), forward, x, logit_rows=[]).shape == (0, 20)


@pytest.mark.parametrize("simd", [name for name in SIMD if name != "generic"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_bits_are_those_of_the_generic_twin(simd: str, name: str) -> None:
    for width_scale in (0.05, 1.0, 40.0):
        x = random_rows(40, WIDTH, scale=width_scale)
        ours = run_on(NativeOps(threads=1, simd=simd), ELEMENTWISE[name][0], x)
        assert same_bits(
            ours, run_on(NativeOps(threads=1, simd="generic"), ELEMENTWISE[name][0], x)
        )


@pytest.mark.parametrize("simd", [name for name in SIMD if name != "generic"])
def test_norm_and_rope_bits_are_those_of_the_generic_twin(simd: str) -> None:
    def forward(ops, w, step):  # type: ignore[no-untyped-def]
        x = ops.layer_norm(ops.embedding(step.tokens, w["x"]), w["w"], w["w"], 1e-5)
        x = ops.rms_norm(x, w["w"], 1e-6)
        for rope in ROPES.values():
            x = ops.rope(x, step.positions, 35, rope)
        return x

    x, weights = random_rows(20, 105), {"w": tensor("w", vector(105))}
    ours = run_on(NativeOps(threads=1, simd=simd), forward, x, weights)
    assert same_bits(ours, run_on(NativeOps(threads=1, simd="generic"), forward, x, weights))


def test_operations_outside_a_forward_pass_are_refused() -> None:
    ops = NativeOps(threads=1)
    with pytest.raises(RuntimeError, match="only within a compiled forward pass"):
        ops.embedding(TOKENS, ops.load(tensor("x", random_rows(2, 4))))


def test_wrong_shapes_are_refused_by_name() -> None:
    x = random_rows(3, 64)
    with pytest.raises(ValueError, match="x has 64 features, the weight k = 32"):
        run_on(NativeOps(threads=1), linear, x, {"w": tensor("w", random_rows(8, 32))})
    with pytest.raises(ValueError, match="no multiple of the weight's 48"):
        run_on(NativeOps(threads=1), norm, x, {"w": tensor("w", vector(48))})
    with pytest.raises(ValueError, match="bias has 7 values, the weight n_out = 8"):
        weights = {"w": tensor("w", random_rows(8, 64)), "b": tensor("b", vector(7))}
        run_on(NativeOps(threads=1), linear, x, weights)
