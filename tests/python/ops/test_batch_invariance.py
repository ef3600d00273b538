"""The bits of a row's logits depend on its own sequence alone: not on who else is in the batch,
how prompts are cut into steps, how long a page is or where pages lie."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec, ModelSpec, RopeScaling, RopeSpec
from pellucid.models import llama
from pellucid.models.registry import Model
from pellucid.models.weights import Weights
from pellucid.ops.reference import ReferenceOps

Float32 = NDArray[np.float32]

PLAIN = LayerSpec(
    n_heads=4,
    n_kv_heads=2,
    head_dim=8,
    ffn_dim=40,
    attention_scale=0.4,
    rope=RopeSpec(100.0, 8),
)
LAYERS = {
    "plain": PLAIN,
    "window and caps": dataclasses.replace(PLAIN, window=3, attention_softcap=2.0),
    "ALiBi": dataclasses.replace(PLAIN, rope=None, alibi_slopes=(0.5, 0.25, 0.125, 0.0625)),
    "dynamic": dataclasses.replace(
        PLAIN, rope=RopeSpec(100.0, 8, "interleaved", RopeScaling("dynamic", 4.0, 5))
    ),
    "experts": dataclasses.replace(PLAIN, n_experts=4, n_experts_used=2),
}
VOCABULARY = 37


def model(kind: str) -> Model:
    spec = ModelSpec("llama", 24, VOCABULARY, 64, 1e-5, (PLAIN, LAYERS[kind]))
    if kind == "experts":  # a family's experts are the same in all layers
        spec = dataclasses.replace(spec, layers=(LAYERS[kind],) * 2)
    rng = np.random.default_rng(7)
    weights = {
        tensor.name: (1.5 * rng.standard_normal(tensor.shape) / tensor.shape[-1] ** 0.5).astype(
            np.float32
        )
        for tensor in llama.tensors(spec)
    }
    return Model(spec, ReferenceOps(), Weights(weights), llama)


MODELS = {kind: model(kind) for kind in LAYERS}


@dataclass
class Running:
    """One sequence on its way through the steps."""

    tokens: tuple[int, ...]
    pages: tuple[int, ...]
    done: int = 0


def poisoned_cache(running: Model, n_pages: int, page_size: int) -> object:
    """Pages that hold NaN, so that reading what nobody wrote shows."""
    cache = running.ops.new_cache(running.spec, n_pages, page_size)
    for layer in cache.layers:  # type: ignore[attr-defined]
        for array in (*layer.keys.arrays, *layer.values.arrays):
            array[:] = np.nan
    return cache


def alone(running: Model, tokens: tuple[int, ...]) -> Float32:
    """The whole sequence in one step, all logits."""
    span = Span(0, 0, tokens, (0,), n_logits=len(tokens))
    cache = poisoned_cache(running, 1, len(tokens))
    return running.ops.to_numpy(running.forward(Plan((span,), len(tokens)), cache))


@pytest.mark.parametrize("kind", list(LAYERS))
@settings(max_examples=25)
@given(data=st.data())
def test_any_schedule_gives_the_same_bits(kind: str, data: st.DataObject) -> None:
    running = MODELS[kind]
    token = st.integers(0, VOCABULARY - 1)
    prompts = data.draw(st.lists(st.lists(token, min_size=1, max_size=14), min_size=1, max_size=3))
    page_size = data.draw(st.integers(1, 9))
    counts = [-(-len(prompt) // page_size) for prompt in prompts]
    order = data.draw(st.permutations(range(sum(counts) + 2)))
    sequences = [
        Running(tuple(prompt), tuple(order[sum(counts[:i]) :][:count]))
        for i, (prompt, count) in enumerate(zip(prompts, counts, strict=True))
    ]
    expected = [alone(running, sequence.tokens) for sequence in sequences]
    cache = poisoned_cache(running, len(order), page_size)
    while any(sequence.done < len(sequence.tokens) for sequence in sequences):
        spans = _draw_spans(data, sequences)
        logits = running.ops.to_numpy(running.forward(Plan(spans, page_size), cache))
        row = 0
        for span in spans:
            wanted = expected[span.sequence][span.end - span.n_logits : span.end]
            np.testing.assert_array_equal(logits[row : row + span.n_logits], wanted)
            row += span.n_logits
        assert row == len(logits)


def _draw_spans(data: st.DataObject, sequences: list[Running]) -> tuple[Span, ...]:
    """Some sequences take part, in any order, each with a piece of any length."""
    left = [i for i, s in enumerate(sequences) if s.done < len(s.tokens)]
    spans = []
    for i in data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True)):
        sequence = sequences[i]
        length = data.draw(st.integers(1, len(sequence.tokens) - sequence.done))
        piece = sequence.tokens[sequence.done : sequence.done + length]
        n_logits = data.draw(st.integers(0, length))
        spans.append(Span(i, sequence.done, piece, sequence.pages, n_logits))
        sequence.done += length
    return tuple(spans)


@pytest.mark.parametrize("kind", list(LAYERS))
def test_without_a_cache_between_steps(kind: str) -> None:
    """The naive loop, each step from the first token, gives the bits of the paged one."""
    running = MODELS[kind]
    tokens = tuple(int(t) for t in np.random.default_rng(3).integers(0, VOCABULARY, 12))
    expected = alone(running, tokens)
    for end in range(1, len(tokens) + 1):
        np.testing.assert_array_equal(alone(running, tokens[:end])[-1], expected[end - 1])


def test_the_model_hears_every_token() -> None:
    """The check can fail: another first token changes every later row."""
    for kind, running in MODELS.items():
        one, other = alone(running, (1, 2, 3)), alone(running, (5, 2, 3))
        assert (one != other).any(axis=1).all(), kind
