"""Attention over pages against the reference, and the promise that a row's bits depend on nothing
but its own sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.spec import LayerSpec
from pellucid.costs import kv_bytes_per_token
from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.step import Sequence, Step
from tests.native.cases import (
    SIMD,
    Float32,
    Forward,
    assert_close,
    layer_spec,
    model_spec,
    random_rows,
    run_on,
    same_bits,
    tensor,
)

EPS = float(np.finfo(np.float32).eps)

LAYERS = {
    "one head": layer_spec(n_heads=1, n_kv_heads=1, head_dim=64, attention_scale=0.125),
    "shared heads": layer_spec(n_heads=9, n_kv_heads=3, head_dim=64, attention_scale=0.125),
    "many shared": layer_spec(n_heads=14, n_kv_heads=1, head_dim=32, attention_scale=0.17),
    "odd heads": layer_spec(n_heads=6, n_kv_heads=2, head_dim=20, attention_scale=0.22),
    "large heads": layer_spec(n_heads=2, n_kv_heads=2, head_dim=128, attention_scale=0.09),
    "window": layer_spec(n_heads=4, n_kv_heads=2, head_dim=32, window=37),
    "long window": layer_spec(n_heads=4, n_kv_heads=2, head_dim=32, window=200),
    "softcap": layer_spec(n_heads=4, n_kv_heads=2, head_dim=32, attention_softcap=5.0),
    "alibi": layer_spec(n_heads=4, n_kv_heads=2, head_dim=32, alibi_slopes=(0.5, 0.25, 0.1, 0.03)),
    "alibi window": layer_spec(
        n_heads=4, n_kv_heads=2, head_dim=16, alibi_slopes=(0.5, 0.25, 0.1, 0.03), window=150
    ),
}


def attention(layer: LayerSpec) -> Forward:
    q, kv = layer.n_heads * layer.head_dim, layer.n_kv_heads * layer.head_dim

    def forward(ops: Any, w: Any, step: Step) -> Any:
        qkv = ops.embedding(step.tokens, w["x"])
        return ops.attention(*ops.split(qkv, (q, kv, kv)), 0, layer, step)

    return forward


def width(layer: LayerSpec) -> int:
    return (layer.n_heads + 2 * layer.n_kv_heads) * layer.head_dim


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("length", [1, 3, 45, 300])
def test_agrees_with_the_reference(name: str, length: int) -> None:
    layer = LAYERS[name]
    x, spec = random_rows(length, width(layer), 7), model_spec([layer])
    expected = run_on(ReferenceOps(), attention(layer), x, spec=spec)
    ops = NativeOps(threads=2, kv_dtype="f32")
    # A score is a sum of head_dim products; an error in it scales every weight by as much.
    scores = float(np.abs(x).max()) ** 2 * layer.attention_scale * layer.head_dim
    tolerance = 2 * EPS * (scores + 32) * float(np.abs(expected).max())
    assert_close(run_on(ops, attention(layer), x, spec=spec), expected, tolerance)


def test_half_precision_keys_and_values() -> None:
    """Errors are those of rounding K and V to 11 bits, no more."""
    layer = LAYERS["shared heads"]
    x, spec = random_rows(200, width(layer), 7, scale=0.5), model_spec([layer])
    q = layer.n_heads * layer.head_dim
    rounded = x.copy()
    rounded[:, q:] = x[:, q:].astype(np.float16)
    expected = run_on(ReferenceOps(), attention(layer), rounded, spec=spec)
    actual = run_on(NativeOps(threads=1, kv_dtype="f16"), attention(layer), x, spec=spec)
    assert_close(actual, expected, 200 * EPS * float(np.abs(expected).max()))


# Keys and values in every type at least once, and sides of different kinds together.
KV_DTYPES = ["f16", "f32", "int8", "int4", "f16/int8", "int8/int4", "int4/f32"]
IN_BLOCKS = ["int8", "int4", "f32/int8", "int8/int4", "int4/f16"]


@pytest.mark.parametrize("kv_dtype", IN_BLOCKS)
@pytest.mark.parametrize("name", LAYERS)
def test_keys_and_values_in_blocks(name: str, kv_dtype: str) -> None:
    """The reference keeps the same codes, so what differs is the rounding of queries to 16 bits."""
    layer = LAYERS[name]
    x, spec = random_rows(200, width(layer), 7, scale=0.05), model_spec([layer])
    expected = run_on(ReferenceOps(kv_dtype), attention(layer), x, spec=spec)
    actual = run_on(NativeOps(threads=1, kv_dtype=kv_dtype), attention(layer), x, spec=spec)
    q, kv = layer.n_heads * layer.head_dim, layer.n_kv_heads * layer.head_dim
    largest = float(np.linalg.norm(x[:, :q].reshape(-1, layer.head_dim), axis=1).max())
    longest = float(np.linalg.norm(x[:, q : q + kv].reshape(-1, layer.head_dim), axis=1).max())
    # Each feature of a rotated query is off by a 65,534th of its norm or less, up or down.
    score = 4 * layer.attention_scale * largest * longest / 65534
    if kv_dtype.startswith("f32"):
        score = 100 * EPS
    assert_close(actual, expected, 2 * score * float(np.abs(x[:, q + kv :]).max()))


@pytest.mark.parametrize("kv_dtype", ["int8", "int4"])
def test_a_feature_that_stands_out_does_not_drown_the_others(kv_dtype: str) -> None:
    """One feature of every key is 50 times the others, as models have them; a plain rounding of
    blocks to 8 bits would lose 20 % of the rest."""
    layer = LAYERS["one head"]
    x, spec = random_rows(64, width(layer), 7, scale=0.1), model_spec([layer])
    x[:, 64 + 5] = 5
    exact = run_on(ReferenceOps(), attention(layer), x, spec=spec)
    actual = run_on(NativeOps(threads=1, kv_dtype=kv_dtype), attention(layer), x, spec=spec)
    error = np.linalg.norm(actual - exact) / np.linalg.norm(exact)
    assert error < (0.01 if kv_dtype == "int8" else 0.15)


@pytest.mark.parametrize("kv_dtype", ["int8", "int4"])
def test_what_is_no_number_is_not_hidden(kv_dtype: str) -> None:
    layer = LAYERS["one head"]
    for column in (0, 64, 128):  # a query's, a key's, a value's
        x = random_rows(3, width(layer))
        x[1, column] = np.nan
        y = run_on(
            NativeOps(threads=1, kv_dtype=kv_dtype), attention(layer), x, spec=model_spec([layer])
        )
        assert np.all(np.isnan(y[1]))
        assert np.all(np.isnan(y[2])) == (column > 0)
        assert np.all(np.isfinite(y[0]))


def test_values_beyond_half_precision_are_held_at_its_end() -> None:
    layer = LAYERS["one head"]
    x = np.zeros((2, width(layer)), np.float32)
    x[:, 128:] = 1e9
    actual = run_on(NativeOps(threads=1), attention(layer), x, spec=model_spec([layer]))
    assert np.all(actual == 65504)


def test_a_faulty_position_is_noticed() -> None:
    """The comparison above fails when one key of 300 is another."""
    layer = LAYERS["shared heads"]
    x, spec = random_rows(300, width(layer), 7), model_spec([layer])
    expected = run_on(ReferenceOps(), attention(layer), x, spec=spec)
    faulty = x.copy()
    faulty[17, 9 * 64 : 12 * 64] *= -1
    actual = run_on(NativeOps(threads=1, kv_dtype="f32"), attention(layer), faulty, spec=spec)
    with pytest.raises(AssertionError, match="exceeds"):
        assert_close(actual, expected, 1e-4 * float(np.abs(expected).max()))


@pytest.mark.parametrize("simd", [name for name in SIMD if name != "generic"])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_bits_are_those_of_the_generic_twin(simd: str, kv_dtype: str, name: str) -> None:
    layer = LAYERS[name]
    x, spec = random_rows(150, width(layer), 3), model_spec([layer])
    ours = NativeOps(threads=1, simd=simd, kv_dtype=kv_dtype)
    twin = NativeOps(threads=1, simd="generic", kv_dtype=kv_dtype)
    assert same_bits(
        run_on(ours, attention(layer), x, spec=spec), run_on(twin, attention(layer), x, spec=spec)
    )


@dataclass
class Request:
    """One sequence of the batch: its rows of the table, and how they are cut into chunks."""

    rows: range
    chunks: list[int]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[Request], int, int, int]:
    """Requests, page size, threads and a seed for the order of pages and steps."""
    requests, first = [], 0
    for _ in range(draw(st.integers(1, 4))):
        chunks = draw(st.lists(st.one_of(st.just(1), st.integers(1, 180)), min_size=1, max_size=5))
        requests.append(Request(range(first, first + sum(chunks)), chunks))
        first += sum(chunks)
    page_size = draw(st.sampled_from([16, 32, 48, 128]))
    return requests, page_size, draw(st.integers(1, 3)), draw(st.integers(0, 2**31))


def serve(
    ops: NativeOps, layer: LayerSpec, x: Float32, requests: list[Request], page_size: int, seed: int
) -> Float32:
    """Every request's chunks, in order within it and mixed at random between them."""
    rng = np.random.default_rng(seed)
    weights = {"x": ops.load(tensor("x", x))}
    forward = attention(layer)
    run = ops.compile(lambda step: forward(ops, weights, step))
    needed = [-(-len(request.rows) // page_size) for request in requests]
    cache = ops.new_cache(model_spec([layer]), sum(needed) + 3, page_size)
    pages = np.split(rng.permutation(sum(needed) + 3).astype(np.int32), np.cumsum(needed))
    left, done = [list(request.chunks) for request in requests], [0] * len(requests)
    y = np.empty((len(x), layer.n_heads * layer.head_dim), np.float32)
    while any(left):
        waiting = [i for i, chunks in enumerate(left) if chunks]
        chosen = rng.permutation(waiting)[: rng.integers(1, len(waiting) + 1)]
        sequences, tokens, positions = [], [], []
        for i in chosen:
            length = left[i].pop(0)
            sequences.append(Sequence(len(tokens), length, done[i], pages[i]))
            tokens += list(requests[i].rows[done[i] : done[i] + length])
            positions += range(done[i], done[i] + length)
            done[i] += length
        arrays = (np.asarray(a, np.int32) for a in (tokens, positions, range(len(tokens))))
        y[tokens] = run(Step(*arrays, tuple(sequences), page_size, cache))
    return y


@pytest.mark.parametrize("simd", SIMD)
@given(traffic(), st.sampled_from(sorted(LAYERS)), st.sampled_from(KV_DTYPES))
@settings(max_examples=40)
def test_no_traffic_changes_a_bit(
    simd: str, case: tuple[list[Request], int, int, int], name: str, kv_dtype: str
) -> None:
    requests, page_size, threads, seed = case
    if simd == "generic":  # the slow twin gets what a test can wait for
        requests = [
            Request(r.rows[: min(len(r.rows), 40)], [min(len(r.rows), 40)]) for r in requests
        ]
    layer = LAYERS[name]
    x = random_rows(max(r.rows.stop for r in requests), width(layer), seed % 1000)
    ops = NativeOps(threads=threads, simd=simd, kv_dtype=kv_dtype)
    together = serve(ops, layer, x, requests, page_size, seed)
    spec, alone = model_spec([layer]), NativeOps(threads=1, simd=simd, kv_dtype=kv_dtype)
    for request in requests:
        rows = slice(request.rows.start, request.rows.stop)
        assert same_bits(together[rows], run_on(alone, attention(layer), x[rows], spec=spec))


def leaves_nothing_behind(ops: NativeOps, left: float) -> None:
    """A request whose vectors are all `left`, then one with other vectors in the same pages."""
    layer = LAYERS["shared heads"]
    x = random_rows(40, width(layer))
    bad = np.full_like(x, left)
    weights = {"x": ops.load(tensor("x", np.concatenate([x, bad])))}
    forward, spec = attention(layer), model_spec([layer])
    run = ops.compile(lambda step: forward(ops, weights, step))

    def step(first: int, length: int, cache: object) -> Step:
        tokens = np.arange(first, first + length, dtype=np.int32)
        positions = np.arange(length, dtype=np.int32)
        pages = np.arange(3, dtype=np.int32)
        return Step(tokens, positions, positions, (Sequence(0, length, 0, pages),), 16, cache)

    used, fresh = ops.new_cache(spec, 3, 16), ops.new_cache(spec, 3, 16)
    run(step(40, 40, used))
    for length in (1, 21, 40):
        assert same_bits(run(step(0, length, used)), run(step(0, length, fresh)))


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("left", [np.inf, np.nan])
def test_what_a_page_held_before_is_never_seen(kv_dtype: str, left: float) -> None:
    """A page comes back full of infinities, or of what is no number; its new owner's bits are as in
    a fresh cache."""
    leaves_nothing_behind(NativeOps(threads=1, kv_dtype=kv_dtype), left)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 150)), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from(KV_DTYPES),
)
def test_the_cache_takes_what_the_one_formula_says(
    heads: list[tuple[int, int]], n_pages: int, kv_dtype: str
) -> None:
    layers = [layer_spec(n_heads=n, n_kv_heads=n, head_dim=dim) for n, dim in heads]
    spec, ops = model_spec(layers), NativeOps(threads=1, kv_dtype=kv_dtype)
    per_token = kv_bytes_per_token(spec, kv_dtype, ops.kv_lanes)
    assert ops.new_cache(spec, n_pages, 32).nbytes == n_pages * 32 * per_token
