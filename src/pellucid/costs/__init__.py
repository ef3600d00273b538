"""What an operation costs: shapes in, operations and bytes out."""

from pellucid.costs.kv import (
    KV_DTYPES,
    kv_bytes_per_token,
    kv_bytes_per_token_of_layer,
    pages_for,
)

__all__ = ["KV_DTYPES", "kv_bytes_per_token", "kv_bytes_per_token_of_layer", "pages_for"]
