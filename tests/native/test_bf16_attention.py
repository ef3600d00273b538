"""Attention with factors of bfloat16: the tiles against the generic twin, that against the exact
one, and the promise that a row's bits depend on nothing but its own sequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from tests.native.cases import SIMD, layer_spec, model_spec, random_rows, run_on, same_bits
from tests.native.test_attention import (
    LAYERS,
    Request,
    attention,
    leaves_nothing_behind,
    serve,
    traffic,
    width,
)

KERNELS = [name for name in SIMD if name in ("generic", "amx")]
# Heads of whole blocks of 32; others are as with f32.
ROUNDED = {name: layer for name, layer in LAYERS.items() if layer.head_dim % 32 == 0}
ROUNDED["96 features"] = layer_spec(n_heads=5, n_kv_heads=1, head_dim=96, attention_scale=0.1)
ROUNDED["odd window"] = layer_spec(n_heads=6, n_kv_heads=2, head_dim=64, window=83)


def bf16_ops(simd: str, threads: int = 1, kv_dtype: str = "f16") -> NativeOps:
    """Also of the generic twin, which no user is given."""
    ops = NativeOps(threads=threads, simd=simd, kv_dtype=kv_dtype)
    ops.activations = "bf16"
    return ops


@pytest.mark.skipif("amx" not in SIMD, reason="needs a processor with AMX tiles")
@pytest.mark.parametrize("length", [1, 6, 17, 150])
@pytest.mark.parametrize("name", ROUNDED)
def test_bits_are_those_of_the_generic_twin(name: str, length: int) -> None:
    layer = ROUNDED[name]
    x, spec = random_rows(length, width(layer), 3), model_spec([layer])
    x[::3, ::7] = 1e-42  # what is below the smallest normal number is zero to both
    ours, twin = (
        run_on(bf16_ops(simd), attention(layer), x, spec=spec) for simd in ("amx", "generic")
    )
    assert same_bits(ours, twin)
    exact = run_on(NativeOps(threads=1, simd="amx"), attention(layer), x, spec=spec)
    assert length == 1 or not same_bits(ours, exact)


@pytest.mark.parametrize("simd", KERNELS)
@pytest.mark.parametrize("name", ROUNDED)
def test_agrees_with_the_reference(name: str, simd: str) -> None:
    """Each factor is off by a 512th of itself or less."""
    layer = ROUNDED[name]
    x, spec = random_rows(140, width(layer), 7, scale=0.5), model_spec([layer])
    expected = run_on(ReferenceOps(), attention(layer), x, spec=spec)
    actual = run_on(bf16_ops(simd), attention(layer), x, spec=spec)
    d = layer.head_dim
    q, kv = layer.n_heads * d, layer.n_kv_heads * d
    longest = [
        float(np.linalg.norm(part.reshape(-1, d), axis=1).max())
        for part in (x[:, :q], x[:, q : q + kv])
    ]
    # A score is off by 2 / 512 of the product of both norms at most, a weight's share by twice as
    # much of itself; a weight and a value are each rounded once more.
    score = layer.attention_scale * longest[0] * longest[1] * 2 / 512
    bound = (2 * score + 2 / 512) * 1.1 * float(np.abs(x[:, q + kv :]).max())
    assert np.abs(actual - expected).max() <= bound
    assert np.abs(actual - expected).max() > 1e-5


@pytest.mark.parametrize("kv_dtype", ["f32", "int8", "f16/int8"])
def test_other_keys_and_values_are_as_without(kv_dtype: str) -> None:
    layer = LAYERS["shared heads"]
    x, spec = random_rows(40, width(layer), 5), model_spec([layer])
    plain = NativeOps(threads=1, kv_dtype=kv_dtype, simd=KERNELS[-1])
    ours = run_on(bf16_ops(KERNELS[-1], kv_dtype=kv_dtype), attention(layer), x, spec=spec)
    assert same_bits(ours, run_on(plain, attention(layer), x, spec=spec))


@pytest.mark.parametrize("simd", KERNELS)
@given(traffic(), st.sampled_from(sorted(ROUNDED)))
@settings(max_examples=30)
def test_no_traffic_changes_a_bit(
    simd: str, case: tuple[list[Request], int, int, int], name: str
) -> None:
    requests, page_size, threads, seed = case
    if simd == "generic":  # the slow twin gets what a test can wait for
        requests = [
            Request(r.rows[: min(len(r.rows), 20)], [min(len(r.rows), 20)]) for r in requests[:2]
        ]
    layer = ROUNDED[name]
    x = random_rows(max(r.rows.stop for r in requests), width(layer), seed % 1000)
    together = serve(bf16_ops(simd, threads), layer, x, requests, page_size, seed)
    spec = model_spec([layer])
    for request in requests:
        rows = slice(request.rows.start, request.rows.stop)
        alone = run_on(bf16_ops(simd), attention(layer), x[rows], spec=spec)
        assert same_bits(together[rows], alone)


@pytest.mark.skipif("amx" not in SIMD, reason="needs a processor with AMX tiles")
@pytest.mark.parametrize("context", [513, 1100])
def test_a_long_context_is_split_over_threads_to_the_same_bits(context: int) -> None:
    layer = LAYERS["shared heads"]
    x, spec = random_rows(context, width(layer), 11), model_spec([layer])
    whole = run_on(bf16_ops("amx"), attention(layer), x, spec=spec)
    request = Request(range(context), [context - 1, 1])
    assert same_bits(serve(bf16_ops("amx", 3), layer, x, [request], 16, 1), whole)


@pytest.mark.parametrize("simd", KERNELS)
@pytest.mark.parametrize("left", [np.inf, np.nan])
def test_what_a_page_held_before_is_never_seen(simd: str, left: float) -> None:
    leaves_nothing_behind(bf16_ops(simd), left)


@pytest.mark.parametrize("simd", [name for name in SIMD if name not in KERNELS])
def test_an_instruction_set_without_such_kernels_is_refused(simd: str) -> None:
    layer = LAYERS["one head"]
    with pytest.raises(ValueError, match=f"{simd} has no kernels of bfloat16"):
        run_on(bf16_ops(simd), attention(layer), random_rows(1, width(layer)))
