"""Costs of operations: by hand, and against counting one row at a time."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.spec import LayerSpec
from pellucid.costs.operations import Cost, attention, embedding, experts, linear, norm

LAYER = LayerSpec(n_heads=9, n_kv_heads=3, head_dim=64, ffn_dim=1536, attention_scale=0.125)
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=4)
windows = st.one_of(st.none(), st.integers(1, 50))


def test_linear_by_hand() -> None:
    cost = linear(3, 576, 1536, 552_960)
    assert cost.operations == 2 * 3 * 576 * 1536
    assert cost.weights_read == 552_960
    assert (cost.activations_read, cost.activations_written) == (4 * 3 * 576, 4 * 3 * 1536)
    assert cost.bytes_moved == 552_960


def test_what_has_no_rows_costs_nothing() -> None:
    assert linear(0, 8, 8, 100) == norm(0, 8, 32) == embedding(0, 8, 9) == Cost()
    assert experts(0, dataclasses.replace(LAYER, n_experts=4, n_experts_used=2), 8, 100) == Cost()


def test_a_table_is_read_by_rows() -> None:
    assert embedding(5, 576, 612).weights_read == 5 * 612


def test_experts_are_read_at_most_once_each() -> None:
    layer = dataclasses.replace(LAYER, n_experts=8, n_experts_used=2, ffn_dim=16)
    one, many = experts(1, layer, 32, 800), experts(100, layer, 32, 800)
    assert one.weights_read == 200  # two experts of eight
    assert many.weights_read == 800
    assert many.operations == 100 * one.operations == 100 * 2 * 2 * 32 * 16


@given(spans, windows)
def test_attention_counts_each_row_s_sight(
    given_spans: list[tuple[int, int]], window: int | None
) -> None:
    layer = dataclasses.replace(LAYER, window=window)
    pairs = seen = rows = 0
    for start, length in given_spans:
        sight = [
            range(max(0, p + 1 - window) if window else 0, p + 1)
            for p in range(start, start + length)
        ]
        pairs += sum(map(len, sight))
        seen += len(set().union(*sight))
        rows += length
    cost = attention(layer, given_spans, "f16")
    assert cost.operations == 4 * 9 * 64 * pairs
    assert cost.kv_read == seen * 2 * 3 * 64 * 2
    assert cost.kv_written == rows * 2 * 3 * 64 * 2


@given(st.integers(0, 100), st.integers(1, 60), st.integers(1, 59), windows)
def test_chunks_do_the_same_arithmetic(
    start: int, length: int, cut: int, window: int | None
) -> None:
    layer = dataclasses.replace(LAYER, window=window)
    cut = min(cut, length)
    whole = attention(layer, [(start, length)], "f32")
    first, second = ([(start, cut)], [(start + cut, length - cut)] if length > cut else [])
    parts = attention(layer, first, "f32") + attention(layer, second, "f32")
    assert parts.operations == whole.operations
    assert parts.kv_written == whole.kv_written
    assert parts.kv_read >= whole.kv_read
