"""One function per operation: shapes in, arithmetic and bytes out.

They count the least that must be done: each weight is read once a step however many rows it
meets, each visible key and value once a span. A multiply and an add are two operations.
Activations are counted as float32, though caches may keep them from memory altogether.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from pellucid.core.cost import Cost
from pellucid.core.spec import LayerSpec
from pellucid.costs.kv import kv_bytes_per_token_of_layer

_FLOAT = 4
_kv_bytes_per_token_of_layer = lru_cache(maxsize=256)(kv_bytes_per_token_of_layer)


def linear(rows: int, n_in: int, n_out: int, weight_bytes: int) -> Cost:
    """y [rows, n_out] = x [rows, n_in] W^T, W stored in `weight_bytes` bytes."""
    if not rows:
        return Cost()
    return Cost(
        operations=2 * rows * n_in * n_out,
        weights_read=weight_bytes,
        activations_read=_FLOAT * rows * n_in,
        activations_written=_FLOAT * rows * n_out,
    )


def embedding(rows: int, features: int, row_bytes: int) -> Cost:
    """A row of the table, stored in `row_bytes` bytes, for each of `rows` ids."""
    return Cost(weights_read=rows * row_bytes, activations_written=_FLOAT * rows * features)


def norm(rows: int, features: int, weight_bytes: int) -> Cost:
    """RMSNorm or LayerNorm of each row: a square, a sum, a scale and a weight for each feature."""
    if not rows:
        return Cost()
    moved = _FLOAT * rows * features
    return Cost(4 * rows * features, weight_bytes, 0, 0, moved, moved)


def experts(rows: int, layer: LayerSpec, features: int, weight_bytes: int) -> Cost:
    """A product of size features x ffn_dim in each expert that a row is sent to.

    `weight_bytes` are of all experts together. At most rows * n_experts_used experts are read.
    """
    if not rows:
        return Cost()
    read = min(layer.n_experts, rows * layer.n_experts_used)
    products = rows * layer.n_experts_used
    return Cost(
        operations=2 * products * features * layer.ffn_dim,
        weights_read=weight_bytes * read // layer.n_experts,
        activations_read=_FLOAT * products * features,
        activations_written=_FLOAT * products * layer.ffn_dim,
    )


def attention(
    layer: LayerSpec, spans: Iterable[tuple[int, int]], kv_dtype: str, kv_lanes: int = 1
) -> Cost:
    """Causal attention of spans (start, length): the scores q k, and the sums p v.

    A row at position p sees p + 1 positions, or the layer's window of them. The span's own keys
    and values are written; every one that any of its rows sees is read once.
    """
    per_position = _kv_bytes_per_token_of_layer(layer, kv_dtype, kv_lanes)
    width = layer.n_heads * layer.head_dim
    window = layer.window
    visible = seen = rows = 0
    for start, length in spans:
        rows += length
        end = start + length
        if window is None or end <= window:
            visible += (end * (end + 1) - start * (start + 1)) // 2
            seen += end
        else:
            full = max(start, window - 1)  # from here on a row sees the whole window
            visible += _triangle(full) - _triangle(start) + (end - full) * window
            seen += end - max(0, start + 1 - window)
    return Cost(
        operations=2 * 2 * width * visible,
        kv_read=per_position * seen,
        kv_written=per_position * rows,
        activations_read=_FLOAT * rows * width,
        activations_written=_FLOAT * rows * width,
    )


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
