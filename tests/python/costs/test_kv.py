"""Bytes of the KV cache: by hand, and as a backend really allocates them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import (
    kv_bytes_per_token,
    kv_bytes_per_token_of_layer,
    kv_types,
    kv_vector_bytes,
    pages_for,
)
from pellucid.ops.reference.attention import KVCache

LAYER = LayerSpec(n_heads=9, n_kv_heads=3, head_dim=64, ffn_dim=1536, attention_scale=0.125)
SMOLLM2 = ModelSpec(
    family="llama",
    d_model=576,
    vocab_size=49152,
    context_length=8192,
    norm_eps=1e-5,
    layers=(LAYER,) * 30,
)


def test_smollm2_by_hand() -> None:
    assert kv_bytes_per_token_of_layer(LAYER) == 2 * 3 * 64 * 4
    assert kv_bytes_per_token(SMOLLM2) == 30 * 1536
    assert kv_bytes_per_token(SMOLLM2, "f16") == 30 * 768


def test_types_in_blocks_by_hand() -> None:
    """A head of 64 is one block: int8 adds a scale to it, int4 a scale and a minimum."""
    assert kv_bytes_per_token(SMOLLM2, "int8") == 30 * 3 * 2 * (64 + 2)
    assert kv_bytes_per_token(SMOLLM2, "int4") == 30 * 3 * 2 * (32 + 4)
    assert kv_bytes_per_token(SMOLLM2, "int8/int4") == 30 * 3 * (64 + 2 + 32 + 4)
    odd = dataclasses.replace(LAYER, n_kv_heads=1, head_dim=80)  # kept as 96, in two blocks
    assert kv_bytes_per_token_of_layer(odd, "int8/f16", 16) == 96 + 2 * 2 + 80 * 2


@pytest.mark.parametrize("dtype", ["int3", "", "/", "f16/", "/int8", "f16/f16/f16", "INT8"])
def test_an_unknown_dtype_is_refused_by_name(dtype: str) -> None:
    with pytest.raises(BadInput, match=f"{dtype!r} is unknown: choose one of f32, f16, int8, int4"):
        kv_bytes_per_token(SMOLLM2, dtype)


def test_one_type_for_both_is_written_once() -> None:
    assert str(kv_types("int8/int8")) == "int8"
    assert str(kv_types("f16/int4")) == "f16/int4"


@given(st.integers(1, 8))
def test_whole_blocks_take_eight_and_a_quarter_or_four_and_a_half_bits(blocks: int) -> None:
    assert kv_vector_bytes(64 * blocks, "int8") * 8 == 64 * blocks * 8.25
    assert kv_vector_bytes(64 * blocks, "int4") * 8 == 64 * blocks * 4.5


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 100)), min_size=1, max_size=3),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(["f32", "f16", "int8", "int4", "f16/int4"]),
)
def test_the_reference_cache_takes_just_that(
    heads: list[tuple[int, int]], n_pages: int, page_size: int, dtype: str
) -> None:
    layers = tuple(
        dataclasses.replace(LAYER, n_kv_heads=n, n_heads=n, head_dim=dim) for n, dim in heads
    )
    spec = dataclasses.replace(SMOLLM2, layers=layers)
    cache = KVCache(spec, n_pages, page_size, kv_types(dtype))
    assert cache.nbytes == n_pages * page_size * kv_bytes_per_token(spec, dtype)


@given(st.integers(0, 1000), st.integers(1, 64))
def test_pages_hold_the_tokens_and_no_page_is_empty(n_tokens: int, page_size: int) -> None:
    pages = pages_for(n_tokens, page_size)
    assert (pages - 1) * page_size < n_tokens <= pages * page_size or n_tokens == pages == 0
