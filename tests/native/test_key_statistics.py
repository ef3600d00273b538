"""What is known of a model's keys: alike on both backends, better scores, the same bits in any
traffic."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.core.plan import Plan, Span
from pellucid.models.key_statistics import with_key_prior
from pellucid.models.registry import Model
from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.vocabulary import Ops
from tests.native.cases import Float32, assert_close, same_bits
from tests.native.families import CONFIGS, tiny_model
from tests.native.test_models import logits, tokens_of

TEXT = tokens_of(200, seed=3)


def knowing(architecture: str, ops: Ops) -> Model:
    return with_key_prior(tiny_model(architecture, ops), TEXT)


def in_chunks(model: Model, tokens: tuple[int, ...], length: int) -> Float32:
    pages = tuple(range(-(-len(tokens) // 16)))
    cache = model.ops.new_cache(model.spec, len(pages), 16)
    rows = []
    for start in range(0, len(tokens), length):
        part = tokens[start : start + length]
        plan = Plan((Span(0, start, part, pages, len(part)),), 16)
        rows.append(np.array(model.ops.to_numpy(model.forward(plan, cache))))
    return np.concatenate(rows)


@pytest.mark.parametrize("architecture", CONFIGS)
def test_backends_learn_the_same(architecture: str) -> None:
    reference = knowing(architecture, ReferenceOps("int4"))
    native = knowing(architecture, NativeOps(threads=2, kv_dtype="int4"))
    for layer in range(len(reference.spec.layers)):
        for part in ("mean", "first"):
            name = f"blk.{layer}.attn_k.{part}"
            # The text is read with keys and values in half precision.
            expected = reference.weights[name]
            error = np.abs(native.weights[name].values() - expected).max()
            assert error < 2e-3 * np.abs(expected).max()


# GPT-2's rows hold their positions.
@pytest.mark.parametrize("architecture", [name for name in CONFIGS if "GPT2" not in name])
def test_keys_have_that_mean_before_they_are_turned(architecture: str) -> None:
    """All keys of a model whose tokens are one token are alike but for their turn."""
    model = tiny_model(architecture, ReferenceOps("int4"))
    same = with_key_prior(model, (5,) * 100)
    mean, first = (same.weights[f"blk.0.attn_k.{part}"] for part in ("mean", "first"))
    assert_close(mean, first, 1e-4 * float(np.abs(first).max()))


@pytest.mark.parametrize("architecture", CONFIGS)
def test_chunks_and_threads_change_no_bit(architecture: str) -> None:
    tokens = tokens_of(150)
    model = knowing(architecture, NativeOps(threads=2, kv_dtype="int4"))
    alone = logits(model, tokens)
    assert same_bits(in_chunks(model, tokens, 7), alone)
    again = knowing(architecture, NativeOps(threads=1, kv_dtype="int4"))
    assert same_bits(logits(again, tokens), alone)


def test_int4_is_nearer_to_the_truth() -> None:
    """Together, over families: of tiny random models a single one may be unlucky."""
    tokens, ratios = tokens_of(200), []
    for architecture in CONFIGS:
        exact = logits(tiny_model(architecture, ReferenceOps()), tokens)
        ops = NativeOps(threads=2, kv_dtype="int4/f32")
        plain = logits(tiny_model(architecture, ops), tokens)
        better = logits(knowing(architecture, ops), tokens)
        ratios.append(np.linalg.norm(better - exact) / np.linalg.norm(plain - exact))
    assert float(np.exp(np.log(ratios).mean())) < 0.9


@pytest.mark.parametrize("dtype", ["f16", "int8", "int8/int4"])
def test_other_keys_need_no_text(dtype: str) -> None:
    model = tiny_model("LlamaForCausalLM", NativeOps(threads=1, kv_dtype=dtype))
    assert with_key_prior(model, TEXT) is model


def test_a_short_text_says_nothing() -> None:
    model = tiny_model("LlamaForCausalLM", ReferenceOps("int4"))
    assert with_key_prior(model, TEXT[:20]) is model
