"""A watched pass of every family: it changes nothing, and what it saw adds up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.plan import Plan, Span
from pellucid.explain.inside import Inside, WatchedOps, watch
from pellucid.explain.seen import attention, lens, likeliest, probabilities
from pellucid.ops.reference import ReferenceOps
from pellucid.quant.types import TensorType
from tests.native.families import CONFIGS, tiny_model

LENGTH = 50  # beyond the windows of 40


def looked(architecture: str, type: TensorType = TensorType.F32) -> tuple[Inside, list[int]]:
    ops = WatchedOps()
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, 97, LENGTH)]
    return watch(tiny_model(architecture, ops, type), ops, tokens), tokens


@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_lens_ends_at_the_models_own_logits(architecture: str) -> None:
    inside, tokens = looked(architecture)
    model = tiny_model(architecture, ReferenceOps())
    pages = tuple(range(4))
    plan = Plan((Span(0, 0, tuple(tokens), pages, 1),), 16)
    logits = model.forward(plan, model.ops.new_cache(model.spec, 4, 16))
    np.testing.assert_allclose(inside.lens[-1], logits[0], rtol=2e-5, atol=2e-5)
    assert inside.residuals.shape == (model.spec.n_layers + 1, model.spec.d_model)
    # Each layer changes the stream.
    assert all((a != b).any() for a, b in zip(inside.residuals, inside.residuals[1:], strict=False))


@pytest.mark.parametrize("architecture", CONFIGS)
def test_every_row_of_attention_sums_to_one_and_sees_no_future(architecture: str) -> None:
    inside, _ = looked(architecture)
    for heads in inside.heads:
        for head in range(heads.layer.n_heads):
            matrix = heads.matrix(head)
            np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-5)
            assert not np.triu(matrix, 1).any()
            assert (matrix >= 0).all()
            if heads.layer.window is not None:
                assert not np.tril(matrix, -heads.layer.window).any()
                assert np.tril(matrix, 1 - heads.layer.window).any()


def test_quantised_weights_are_dequantised_exactly() -> None:
    inside, tokens = looked("Qwen2ForCausalLM", TensorType.Q8_0)
    model = tiny_model("Qwen2ForCausalLM", ReferenceOps(), TensorType.Q8_0)
    pages = tuple(range(4))
    plan = Plan((Span(0, 0, tuple(tokens), pages, 1),), 16)
    logits = model.forward(plan, model.ops.new_cache(model.spec, 4, 16))
    np.testing.assert_allclose(inside.lens[-1], logits[0], rtol=2e-5, atol=2e-5)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40), st.integers(1, 50))
def test_probabilities_sum_to_one_and_the_likeliest_come_first(
    row: list[float], count: int
) -> None:
    shares = probabilities(np.array([row], np.float32))
    assert shares.sum() == pytest.approx(1.0, abs=1e-9)
    top = likeliest(shares[0], count, str)
    assert len(top) == min(count, len(row))
    assert [t.probability for t in top] == sorted((t.probability for t in top), reverse=True)
    assert top[0].probability == shares.max()


def test_the_lens_follows_the_token_that_is_asked_for() -> None:
    inside, _ = looked("LlamaForCausalLM")
    shares = probabilities(inside.lens)
    for followed in (0, 5, int(inside.lens[-1].argmax())):
        rows = lens(inside, followed, str)
        assert [row.layers for row in rows] == list(range(inside.spec.n_layers + 1))
        for row, share in zip(rows, shares, strict=True):
            assert row.followed_probability == share[followed]
            assert row.followed_rank == 1 + sum(other > share[followed] for other in share)
            assert row.top.probability == share.max()


def test_left_to_itself_the_head_is_the_most_focused_one() -> None:
    inside, _ = looked("LlamaForCausalLM")
    chosen = attention(inside, None, None)
    best = max(heads.row(LENGTH - 1)[:, 1:-1].max() for heads in inside.heads)
    assert max(chosen.weights[1:-1]) == pytest.approx(float(best))
    assert "of all heads" in chosen.chosen
    within = attention(inside, 1, None)
    assert within.layer == 1
    asked = attention(inside, 1, 2)
    assert (asked.layer, asked.head, asked.chosen) == (1, 2, "as asked")
    assert sum(asked.weights) == pytest.approx(1.0, abs=1e-5)
    assert asked.matrix is not None
    assert asked.matrix[-1] == asked.weights


@pytest.mark.parametrize(("layer", "head"), [(2, None), (-1, 0), (0, 4), (None, 99), (0, -1)])
def test_a_layer_or_head_that_is_not_there(layer: int | None, head: int | None) -> None:
    inside, _ = looked("LlamaForCausalLM")
    with pytest.raises(BadInput, match=r"has (layers|heads) 0 to"):
        attention(inside, layer, head)


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts(length: int) -> None:
    ops = WatchedOps()
    inside = watch(tiny_model("GPT2LMHeadModel", ops), ops, list(range(length)))
    assert sum(attention(inside, None, None).weights) == pytest.approx(1.0, abs=1e-5)
