"""Types of the KV cache, and its bytes: the one formula that the allocator, the estimates and the
plans share."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.errors import BadInput
from pellucid.core.spec import LayerSpec, ModelSpec

KV_DTYPES = ("f32", "f16", "int8", "int4")
NATIVE_LANES = 16  # the native cache keeps a value head in whole registers of so many features

# int8 and int4 cut a head's vector into blocks, each with a scale in half precision (int4: and a
# minimum); a vector is filled up to a multiple of `KV_PADDING`.
KV_BLOCK = 64
KV_PADDING = 32

KV_ELEMENT_BYTES = {"f32": 4, "f16": 2, "int8": 1, "int4": 0.5}
_BLOCK_BYTES = {"f32": 0, "f16": 0, "int8": 2, "int4": 4}


@dataclass(frozen=True, slots=True)
class KvTypes:
    """How keys and how values are kept, each by a name of `KV_DTYPES`."""

    keys: str
    values: str

    def __str__(self) -> str:
        return self.keys if self.keys == self.values else f"{self.keys}/{self.values}"


def kv_types(dtype: str) -> KvTypes:
    """What `dtype` means: one name of `KV_DTYPES`, or "KEYS/VALUES" for two.

    Raises `BadInput` for anything else.
    """
    keys, slash, values = dtype.partition("/") if isinstance(dtype, str) else ("", "", "")
    chosen = KvTypes(keys, values if slash else keys)
    if chosen.keys not in KV_DTYPES or chosen.values not in KV_DTYPES:
        raise BadInput(
            f"kv_cache_dtype {dtype!r} is unknown: choose one of {', '.join(KV_DTYPES)}, or two "
            "for keys and values, as in int8/int4"
        )
    return chosen


def in_blocks(dtype: str) -> bool:
    """Whether a type rounds blocks of a vector to whole numbers."""
    return _BLOCK_BYTES[dtype] > 0


def kv_vector_bytes(head_dim: int, dtype: str, lanes: int = 1) -> int:
    """Bytes of one head's key or value of one position; floats are rounded up to a multiple of
    `lanes` features."""
    multiple = KV_PADDING if in_blocks(dtype) else lanes
    features = -(-head_dim // multiple) * multiple
    return int(features * KV_ELEMENT_BYTES[dtype]) + -(-features // KV_BLOCK) * _BLOCK_BYTES[dtype]


def kv_bytes_per_token_of_layer(layer: LayerSpec, dtype: str = "f32", lanes: int = 1) -> int:
    """Bytes that one position takes in one layer: a key and a value for each kv head, with the
    parameters of their blocks; `lanes` (a backend's `kv_lanes`) is for values.

    Raises `BadInput` for a dtype that `kv_types` does not know.
    """
    types = kv_types(dtype)
    key = kv_vector_bytes(layer.head_dim, types.keys)
    return layer.n_kv_heads * (key + kv_vector_bytes(layer.head_dim, types.values, lanes))


def kv_bytes_per_token(spec: ModelSpec, dtype: str = "f32", lanes: int = 1) -> int:
    """Bytes that one position takes in all layers. Raises as `kv_bytes_per_token_of_layer`."""
    return sum(kv_bytes_per_token_of_layer(layer, dtype, lanes) for layer in spec.layers)


def pages_for(n_tokens: int, page_size: int) -> int:
    """Pages that hold `n_tokens` positions."""
    return -(-n_tokens // page_size)
