"""Keys in blocks are stored less what a bias puts into all of them: no result changes by it but for
the better, and no bit by the traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.spec import LayerSpec, RopeSpec
from pellucid.ops.key_prior import KeyPrior, feedback_rows
from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import HostTensor
from tests.native.cases import (
    SIMD,
    Float32,
    Forward,
    layer_spec,
    model_spec,
    run_on,
    same_bits,
    step_of,
    tensor,
)

SHAPE = {"n_heads": 4, "n_kv_heads": 2, "head_dim": 64, "attention_scale": 0.125}
LAYERS = {
    "half": layer_spec(rope=RopeSpec(1e4, 64), **SHAPE),
    "interleaved": layer_spec(rope=RopeSpec(1e6, 48, "interleaved"), **SHAPE),
    "no rope": layer_spec(alibi_slopes=(0.5, 0.25, 0.1, 0.03), **SHAPE),
    "capped window": layer_spec(rope=RopeSpec(1e6, 64), window=150, attention_softcap=9.0, **SHAPE),
}
N = 300
Q, KV = 256, 128


def attention(layer: LayerSpec, told: bool) -> Forward:
    """q, k and v of the rows, k with a bias before it is turned; `told` says whether attention is
    told of it."""

    def forward(ops: Any, w: Any, step: Step) -> Any:
        qkv = ops.embedding(step.tokens, w["x"])
        q, k, v = ops.split(qkv, (Q, KV, KV))
        if layer.rope is not None:
            q, k = (ops.rope(x, step.positions, 64, layer.rope) for x in (q, k))
        prior = KeyPrior(w["bias"], w.get("first"), w.get("feedback")) if told else None
        return ops.attention(q, k, v, 0, layer, step, prior)

    return forward


def rows_and_bias(scale: float = 0.3) -> tuple[Float32, Float32]:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((N, Q + 2 * KV)) * scale).astype(np.float32)
    bias = (rng.standard_normal(KV) * 0.5).astype(np.float32)
    bias[[30, 31, 62, 63, 93]] = 20, -15, 18, 25, 30  # of pairs that turn slowly
    x[:, Q : Q + KV] += bias
    return x, bias


def known() -> dict[str, HostTensor]:
    """The prior's tensors: the bias, what the first keys have instead, and feedback by queries that
    look in a few directions only."""
    rng = np.random.default_rng(2)
    queries = rng.standard_normal((2, 400, 64)) * np.exp(rng.normal(0, 1.5, (2, 1, 64)))
    queries = queries @ np.linalg.qr(rng.standard_normal((64, 64)))[0]
    bias = rows_and_bias()[1]
    first = (bias + rng.standard_normal(KV)).astype(np.float32)
    feedback = feedback_rows(queries.transpose(0, 2, 1) @ queries / 400)
    values = {"bias": bias, "first": first, "feedback": feedback}
    return {name: tensor(name, value) for name, value in values.items()}


def run(ops: Any, name: str, told: bool = True, fed: bool = False) -> Float32:
    x, bias = rows_and_bias()
    layer = LAYERS[name]
    tensors = known() if fed else {"bias": tensor("bias", bias)}
    return run_on(ops, attention(layer, told), x, tensors, spec=model_spec([layer]))


@pytest.mark.parametrize("kv_dtype", ["int8/f32", "int4/f32"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_bias_of_keys_takes_no_bits_of_their_codes(name: str, kv_dtype: str) -> None:
    exact = run(ReferenceOps(), name)
    for ops in (ReferenceOps(kv_dtype), NativeOps(threads=1, kv_dtype=kv_dtype)):
        error, untold = (
            float(np.linalg.norm(run(ops, name, told) - exact)) for told in (True, False)
        )
        assert error < 0.6 * untold


@pytest.mark.parametrize(
    ("kv_dtype", "fed"), [("int8", False), ("int4", False), ("int8", True), ("int4", True)]
)
@pytest.mark.parametrize("name", LAYERS)
def test_backends_store_the_same_codes(name: str, kv_dtype: str, fed: bool) -> None:
    """Differences of codes would cost a step of them; rotary angles round apart by far less."""
    expected = run(ReferenceOps(kv_dtype), name, fed=fed)
    actual = run(NativeOps(threads=1, kv_dtype=kv_dtype), name, fed=fed)
    step = float(np.linalg.norm(expected - run(ReferenceOps(), name)))
    assert np.linalg.norm(actual - expected) < 0.1 * step


@pytest.mark.parametrize("kv_dtype", ["f32", "f16"])
def test_floats_are_stored_as_they_are(kv_dtype: str) -> None:
    ops = NativeOps(threads=1, kv_dtype=kv_dtype)
    assert same_bits(run(ops, "half", True), run(ops, "half", False))


@pytest.mark.parametrize("simd", [name for name in SIMD if name != "generic"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("kv_dtype", "fed"), [("int8/int4", False), ("int4", True)])
def test_bits_are_those_of_the_generic_twin(simd: str, name: str, kv_dtype: str, fed: bool) -> None:
    ours, twin = (NativeOps(threads=1, simd=s, kv_dtype=kv_dtype) for s in (simd, "generic"))
    assert same_bits(run(ours, name, fed=fed), run(twin, name, fed=fed))


@given(
    st.lists(st.integers(1, 150), min_size=1, max_size=5),
    st.sampled_from(sorted(LAYERS)),
    st.sampled_from(["int8", "int4"]),
    st.integers(1, 2),
    st.sampled_from(["native", "reference"]),
    st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_chunks_change_no_bit(
    chunks: list[int], name: str, kv_dtype: str, threads: int, backend: str, fed: bool
) -> None:
    native = backend == "native"
    ops: Any = NativeOps(threads=threads, kv_dtype=kv_dtype) if native else ReferenceOps(kv_dtype)
    x, bias = rows_and_bias()
    layer, hosts = LAYERS[name], known() if fed else {"bias": tensor("b", bias)}
    weights = {key: ops.load(host) for key, host in {"x": tensor("x", x), **hosts}.items()}
    forward = ops.compile(lambda step: attention(layer, True)(ops, weights, step))
    cache, found, start = ops.new_cache(model_spec([layer]), 20, 16), [], 0
    for length in chunks:
        length = min(length, N - start)
        if length:
            tokens = np.arange(start, start + length)
            found.append(np.array(forward(step_of(tokens, start=start, cache=cache))))
        start += length
    assert same_bits(np.concatenate(found), run(ops, name, fed=fed)[:start])
