"""What an operation costs: shapes in, operations and bytes out."""

from pellucid.core.cost import Cost
from pellucid.costs.kv import (
    KV_DTYPES,
    NATIVE_LANES,
    kv_bytes_per_token,
    kv_bytes_per_token_of_layer,
    pages_for,
)
from pellucid.costs.step import StepCosts, WeightSize, step_cost

__all__ = [
    "KV_DTYPES",
    "NATIVE_LANES",
    "Cost",
    "StepCosts",
    "WeightSize",
    "kv_bytes_per_token",
    "kv_bytes_per_token_of_layer",
    "pages_for",
    "step_cost",
]
