"""A model cut between layers: each part has its own weights, and the bits are the whole's."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid import BadInput
from pellucid.core.plan import Plan, Span
from pellucid.formats import open_checkpoint
from pellucid.models.key_statistics import with_key_prior
from pellucid.models.registry import load_model
from pellucid.models.stage import LayerRange, even_ranges, load_stage
from pellucid.ops import backend
from pellucid.ops.step import lower
from tests.python.engine.tiny import write_model

N_LAYERS, CONTEXT, PAGE = 5, 96, 16


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("cut") / "tiny.gguf", layers=N_LAYERS)


def span(
    sequence: int, start: int, tokens: tuple[int, ...], pages: tuple[int, ...], n_logits: int
) -> Span:
    return Span(sequence=sequence, start=start, tokens=tokens, pages=pages, n_logits=n_logits)


def plans() -> list[Plan]:
    """A prompt in two chunks with a neighbour, then a token each."""
    first, second = tuple(range(30)), (9, 8, 7)
    return [
        Plan((span(0, 0, first[:20], (0, 1), 0), span(1, 0, second, (2,), 3)), PAGE),
        Plan((span(0, 20, first[20:], (0, 1), 1),), PAGE),
        Plan((span(0, 30, (5,), (0, 1), 1), span(1, 3, (6,), (2,), 1)), PAGE),
    ]


@pytest.mark.parametrize("name", ["reference", "native"])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_the_bits_are_those_of_the_whole(path: Path, name: str, stages: int) -> None:
    with open_checkpoint(path) as checkpoint:
        whole = load_model(checkpoint, backend(name), context=CONTEXT)
        parts = [
            load_stage(checkpoint, backend(name), layers, context=CONTEXT, max_rows=64)
            for layers in even_ranges(N_LAYERS, stages)
        ]
    cache = whole.ops.new_cache(whole.spec, 4, PAGE)
    caches = [part.ops.new_cache(part.spec, 4, PAGE) for part in parts]
    for plan in plans():
        step = lower(plan, cache)
        expected = np.array(whole.ops.to_numpy(whole.logits(step)))
        final = np.array(whole.ops.to_numpy(whole.hidden(step)))
        for hidden, right in (False, expected), (True, final):
            rows = None
            for part, own in zip(parts, caches, strict=True):
                rows = part.forward(dataclasses.replace(step, cache=own), rows, hidden=hidden)
            assert rows is not None
            assert rows.tobytes() == right.tobytes()


@pytest.mark.parametrize("name", ["reference", "native"])
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_stages_learn_of_their_keys_what_the_whole_does(path: Path, name: str, stages: int) -> None:
    page = [(7 * i) % 50 for i in range(CONTEXT + 9)]
    with open_checkpoint(path) as checkpoint:
        plain = load_model(checkpoint, backend(name, kv_dtype="int4"), context=CONTEXT)
        parts = [
            load_stage(
                checkpoint, backend(name, kv_dtype="int4"), layers, context=CONTEXT, max_rows=64
            )
            for layers in even_ranges(N_LAYERS, stages)
        ]
    whole = with_key_prior(plain, page)
    rows = None
    for part in parts:
        rows = part.learn_keys(page, rows)
        assert rows is not None and len(rows) == CONTEXT
    cache = whole.ops.new_cache(whole.spec, 4, PAGE)
    caches = [part.ops.new_cache(part.spec, 4, PAGE) for part in parts]
    ignorant = plain.ops.new_cache(plain.spec, 4, PAGE)
    told = []
    for plan in plans():
        step = lower(plan, cache)
        expected = np.array(whole.ops.to_numpy(whole.logits(step)))
        rows = None
        for part, own in zip(parts, caches, strict=True):
            rows = part.forward(dataclasses.replace(step, cache=own), rows)
        assert rows is not None
        assert rows.tobytes() == expected.tobytes()
        unlearned = plain.ops.to_numpy(plain.logits(lower(plan, ignorant)))
        told.append(expected.tobytes() != np.array(unlearned).tobytes())
    assert all(told)


def test_stages_learn_nothing_where_keys_have_more_bits(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        [layers] = even_ranges(N_LAYERS, 1)
        ops = backend("reference", kv_dtype="int8")
        stage = load_stage(checkpoint, ops, layers, context=CONTEXT, max_rows=64)
    assert stage.learn_keys(list(range(80))) is None


def test_each_stage_has_the_weights_of_its_own_layers_alone(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        ops = backend("reference")
        names = [
            {name for name, _ in part.weights.items()}
            for part in (
                load_stage(checkpoint, ops, layers, context=CONTEXT, max_rows=64)
                for layers in even_ranges(N_LAYERS, 2)
            )
        ]
    first, second = names
    assert not first & second
    assert "token_embd.weight" in first
    assert {"output.weight", "output_norm.weight"} <= second
    assert {name.split(".")[1] for name in first if name.startswith("blk")} == {"0", "1"}
    assert {name.split(".")[1] for name in second if name.startswith("blk")} == {"2", "3", "4"}


def test_a_tied_head_is_held_twice() -> None:
    last = LayerRange(3, 5, 5)
    assert last.holds("token_embd.weight", tied_head=True)
    assert not last.holds("token_embd.weight", tied_head=False)
    assert not last.holds("position_embd.weight", tied_head=True)
    assert not LayerRange(1, 3, 5).holds("token_embd.weight", tied_head=True)


@given(st.integers(1, 200), st.data())
def test_every_layer_is_in_one_range(n_layers: int, data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, n_layers))
    ranges = even_ranges(n_layers, stages)
    assert [n for one in ranges for n in range(one.first, one.last)] == list(range(n_layers))
    sizes = [one.last - one.first for one in ranges]
    assert max(sizes) - min(sizes) <= 1
    with pytest.raises(BadInput, match="stages"):
        even_ranges(n_layers, n_layers + 1)
