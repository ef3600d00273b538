"""Bytes of the KV cache: by hand, and as a backend really allocates them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import kv_bytes_per_token, kv_bytes_per_token_of_layer, pages_for
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


def test_an_unknown_dtype_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="'int3' is not implemented"):
        kv_bytes_per_token(SMOLLM2, "int3")


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8)), min_size=1, max_size=3),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_the_reference_cache_takes_just_that(
    heads: list[tuple[int, int]], n_pages: int, page_size: int
) -> None:
    layers = tuple(
        dataclasses.replace(LAYER, n_kv_heads=n, n_heads=n, head_dim=dim) for n, dim in heads
    )
    spec = dataclasses.replace(SMOLLM2, layers=layers)
    cache = KVCache(spec, n_pages, page_size)
    allocated = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert allocated == n_pages * page_size * kv_bytes_per_token(spec)


@given(st.integers(0, 1000), st.integers(1, 64))
def test_pages_hold_the_tokens_and_no_page_is_empty(n_tokens: int, page_size: int) -> None:
    pages = pages_for(n_tokens, page_size)
    assert (pages - 1) * page_size < n_tokens <= pages * page_size or n_tokens == pages == 0
