"""Every family on the native backend: right, and the same bits in every traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.plan import Plan, Span
from pellucid.models.registry import FAMILIES, Model
from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.step import lower
from pellucid.quant.types import TensorType
from tests.native.cases import SIMD, Float32, assert_close, same_bits
from tests.native.families import CONFIGS, tiny_model


def tokens_of(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(int(t) for t in np.random.default_rng(seed).integers(0, 97, length))


def logits(model: Model, tokens: tuple[int, ...], page_size: int = 16) -> Float32:
    """Every position's logits, in one step."""
    pages = tuple(range(-(-len(tokens) // page_size)))
    cache = model.ops.new_cache(model.spec, len(pages), page_size)
    plan = Plan((Span(0, 0, tokens, pages, len(tokens)),), page_size)
    return np.array(model.ops.to_numpy(model.forward(plan, cache)))


def hidden(model: Model, tokens: tuple[int, ...]) -> Float32:
    """Every position's final, normed row, in one step."""
    pages = tuple(range(-(-len(tokens) // 16)))
    plan = Plan((Span(0, 0, tokens, pages, len(tokens)),), 16)
    rows = model.hidden(lower(plan, model.ops.new_cache(model.spec, len(pages), 16)))
    return np.array(model.ops.to_numpy(rows))


def test_no_family_is_left_out() -> None:
    named = {name for family in FAMILIES for name in family.HF_ARCHITECTURES}
    assert set(CONFIGS) <= named
    assert all(set(family.HF_ARCHITECTURES) & set(CONFIGS) for family in FAMILIES)


@pytest.mark.parametrize("architecture", CONFIGS)
def test_float_weights_agree_with_the_reference(architecture: str) -> None:
    tokens = tokens_of(150)
    expected = logits(tiny_model(architecture, ReferenceOps()), tokens)
    ops = NativeOps(threads=2, kv_dtype="f32")
    actual = logits(tiny_model(architecture, ops), tokens)
    # Two layers of sums of 64 to 96 products, each 2^-24 off, made larger by sharp attention.
    assert_close(actual, expected, 3e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("architecture", CONFIGS)
def test_hidden_rows_agree_with_the_reference(architecture: str) -> None:
    tokens = tokens_of(50)
    expected = hidden(tiny_model(architecture, ReferenceOps()), tokens)
    assert expected.shape == (50, 64)
    native = tiny_model(architecture, NativeOps(threads=2, kv_dtype="f32"))
    scores = logits(native, tokens)
    # One product less than the logits, and of their size at most where norms make them so.
    assert_close(hidden(native, tokens), expected, 3e-5 * float(np.abs(expected).max()))
    assert same_bits(logits(native, tokens), scores)  # the two programs share weights and no state


@pytest.mark.parametrize("architecture", CONFIGS)
def test_fusing_changes_no_bit(architecture: str) -> None:
    tokens = tokens_of(40)
    for type in (TensorType.Q8_0, TensorType.F32):
        fused = tiny_model(architecture, NativeOps(threads=2), type)
        plain = tiny_model(architecture, NativeOps(threads=1, fuse=False), type)
        assert same_bits(logits(fused, tokens), logits(plain, tokens))


@pytest.mark.parametrize("architecture", CONFIGS)
def test_rows_nobody_asks_for_change_no_bit(architecture: str) -> None:
    """They are left out after the last attention."""
    model, tokens = tiny_model(architecture, NativeOps(threads=2), TensorType.Q8_0), tokens_of(37)
    cache = model.ops.new_cache(model.spec, 3, 16)
    for n_logits in (1, 2, 20):
        plan = Plan((Span(0, 0, tokens, (0, 1, 2), n_logits),), 16)
        assert same_bits(np.array(model.forward(plan, cache)), logits(model, tokens)[-n_logits:])


def test_fusing_leaves_eight_stages_a_layer() -> None:
    """Norm, qkv, rope and store, attention, output, norm, gate and up, down."""
    model = tiny_model("LlamaForCausalLM", NativeOps(threads=1), TensorType.Q8_0)
    plain = tiny_model("LlamaForCausalLM", NativeOps(threads=1, fuse=False), TensorType.Q8_0)
    assert model._logits.n_stages <= 8 * 2 + 4  # type: ignore[attr-defined]
    assert plain._logits.n_stages > 2 * model._logits.n_stages  # type: ignore[attr-defined]


@dataclass
class Request:
    tokens: tuple[int, ...]
    chunks: list[int]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[Request], int, int]:
    requests = []
    for i in range(draw(st.integers(1, 5))):
        chunks = draw(st.lists(st.one_of(st.just(1), st.integers(1, 90)), min_size=1, max_size=4))
        requests.append(Request(tokens_of(sum(chunks), draw(st.integers(0, 50)) + i), chunks))
    return requests, draw(st.sampled_from([16, 32, 64])), draw(st.integers(0, 2**31))


def serve(model: Model, requests: list[Request], page_size: int, seed: int) -> list[Float32]:
    """Logits of every position of every request, its chunks mixed with the others' at random."""
    rng = np.random.default_rng(seed)
    needed = [-(-len(request.tokens) // page_size) for request in requests]
    n_pages = sum(needed) + 2
    cache = model.ops.new_cache(model.spec, n_pages, page_size)
    order = [int(p) for p in rng.permutation(n_pages)]
    bounds = np.cumsum([0, *needed])
    left, done = [list(r.chunks) for r in requests], [0] * len(requests)
    rows: list[list[Float32]] = [[] for _ in requests]
    while any(left):
        waiting = [i for i, chunks in enumerate(left) if chunks]
        chosen = [int(i) for i in rng.permutation(waiting)[: rng.integers(1, len(waiting) + 1)]]
        spans = []
        for i in chosen:
            length, start = left[i].pop(0), done[i]
            pages = tuple(order[bounds[i] : bounds[i + 1]])
            tokens = requests[i].tokens[start : start + length]
            spans.append(Span(i, start, tokens, pages, length))
            done[i] += length
        parts = iter(model.forward(Plan(tuple(spans), page_size), cache))
        for i, span in zip(chosen, spans, strict=True):
            rows[i] += [next(parts) for _ in span.tokens]
    return [np.stack(r) for r in rows]


ALONE: dict[tuple[str, str, int], Model] = {}
KERNELS: dict[str, dict[str, Any]] = {name: {"simd": name} for name in SIMD}
if "amx" in SIMD:
    KERNELS["amx, bf16"] = {"simd": "amx", "activations": "bf16"}


@pytest.mark.parametrize("simd", [name for name in KERNELS if name != "generic"])
@given(
    traffic(),
    st.sampled_from(["LlamaForCausalLM", "Qwen3MoeForCausalLM", "Gemma2ForCausalLM"]),
    st.integers(1, 3),
)
@settings(max_examples=20)
def test_no_traffic_changes_a_bit(
    simd: str, case: tuple[list[Request], int, int], architecture: str, threads: int
) -> None:
    for n in (1, threads):
        if (simd, architecture, n) not in ALONE:
            ops = NativeOps(threads=n, **KERNELS[simd])
            ALONE[simd, architecture, n] = tiny_model(architecture, ops, TensorType.Q4_0)
    requests, page_size, seed = case
    together = serve(ALONE[simd, architecture, threads], requests, page_size, seed)
    for request, served in zip(requests, together, strict=True):
        assert same_bits(served, logits(ALONE[simd, architecture, 1], request.tokens))


def test_every_instruction_set_gives_the_same_bits() -> None:
    tokens = tokens_of(30)
    results = [
        logits(tiny_model("Qwen2ForCausalLM", NativeOps(threads=1, simd=simd), type), tokens)
        for simd in SIMD
        for type in (TensorType.Q4_0, TensorType.F16)
    ]
    assert all(same_bits(a, b) for a, b in zip(results, results[2:], strict=False))


@pytest.mark.skipif("amx" not in SIMD, reason="needs a processor with AMX tiles")
def test_bf16_is_closer_to_the_reference() -> None:
    tokens = tokens_of(30)
    exact = logits(tiny_model("LlamaForCausalLM", ReferenceOps(), TensorType.Q4_1), tokens)
    errors = []
    for activations in ("int8", "bf16"):
        ops = NativeOps(threads=2, kv_dtype="f32", activations=activations)
        model = tiny_model("LlamaForCausalLM", ops, TensorType.Q4_1)
        errors.append(float(np.abs(logits(model, tokens) - exact).max()))
    assert errors[1] < errors[0] / 2, errors


@pytest.mark.parametrize("simd", SIMD)
def test_unknown_or_impossible_activations_are_refused(simd: str) -> None:
    with pytest.raises(BadInput, match=r"int12.*int8, bf16"):
        NativeOps(simd=simd, activations="int12")
    with pytest.raises(BadInput, match="int16 are no more: bf16"):
        NativeOps(simd=simd, activations="int16")
    if simd != "amx":
        with pytest.raises(BadInput, match="need a processor with AMX tiles"):
            NativeOps(simd=simd, activations="bf16")
