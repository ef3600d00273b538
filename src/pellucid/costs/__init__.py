"""What an operation costs: shapes in, operations and bytes out."""

from pellucid.core.cost import Cost
from pellucid.costs.kv import (
    KV_BLOCK,
    KV_DTYPES,
    KV_ELEMENT_BYTES,
    KV_PADDING,
    NATIVE_LANES,
    KvTypes,
    in_blocks,
    kv_bytes_per_token,
    kv_bytes_per_token_of_layer,
    kv_types,
    kv_vector_bytes,
    pages_for,
)
from pellucid.costs.step import StepCosts, WeightSize, step_cost

__all__ = [
    "KV_BLOCK",
    "KV_DTYPES",
    "KV_ELEMENT_BYTES",
    "KV_PADDING",
    "NATIVE_LANES",
    "Cost",
    "KvTypes",
    "StepCosts",
    "WeightSize",
    "in_blocks",
    "kv_bytes_per_token",
    "kv_bytes_per_token_of_layer",
    "kv_types",
    "kv_vector_bytes",
    "pages_for",
    "step_cost",
]
