"""Bytes of the KV cache: the one formula that the allocator, the estimates and the plans share."""

from __future__ import annotations

from pellucid.core.errors import BadInput
from pellucid.core.spec import LayerSpec, ModelSpec

KV_DTYPES = {"f32": 4, "f16": 2}  # name: bytes of one element
NATIVE_LANES = 16  # the native cache keeps a value head in whole registers of so many features


def kv_bytes_per_token_of_layer(layer: LayerSpec, dtype: str = "f32", lanes: int = 1) -> int:
    """Bytes that one position takes in one layer: a key and a value for each kv head, the value's
    features rounded up to a multiple of `lanes` (a backend's `kv_lanes`).

    Raises `BadInput` for a dtype that is not in `KV_DTYPES`.
    """
    if dtype not in KV_DTYPES:
        raise BadInput(
            f"kv_cache_dtype {dtype!r} is not implemented: choose one of {', '.join(KV_DTYPES)}"
        )
    value = -(-layer.head_dim // lanes) * lanes
    return layer.n_kv_heads * (layer.head_dim + value) * KV_DTYPES[dtype]


def kv_bytes_per_token(spec: ModelSpec, dtype: str = "f32", lanes: int = 1) -> int:
    """Bytes that one position takes in all layers. Raises as `kv_bytes_per_token_of_layer`."""
    return sum(kv_bytes_per_token_of_layer(layer, dtype, lanes) for layer in spec.layers)


def pages_for(n_tokens: int, page_size: int) -> int:
    """Pages that hold `n_tokens` positions."""
    return -(-n_tokens // page_size)
