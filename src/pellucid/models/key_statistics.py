"""What a model's keys and queries are like, seen in a text: so that few bits suffice for keys.

The model reads a text once, its keys and values in half precision, and its queries and keys are
looked at as attention meets them. See `ops/key_prior.py` for what they are good for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec
from pellucid.costs import kv_types, pages_for
from pellucid.models.registry import Model
from pellucid.models.weights import Weights
from pellucid.ops.key_prior import FIRST, MOST_FED, feedback_rows, padded
from pellucid.ops.rotary import rotations, turned_pairs
from pellucid.ops.step import Step, lower
from pellucid.ops.vocabulary import Array, HostTensor, Ops
from pellucid.quant.types import TensorType

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

MOST_TOKENS = 512
_LEAST_TOKENS = 4 * FIRST  # fewer say nothing
_PAGE = 16


def with_key_prior(model: Model, token_ids: Sequence[int]) -> Model:
    """`model`, knowing of its keys what the first `MOST_TOKENS` of `token_ids` show.

    The same model where its cache does not keep keys in int4, where the tokens are too few, or
    where they make no numbers of a layer.
    """
    n = min(len(token_ids), MOST_TOKENS, model.spec.context_length)
    if kv_types(model.ops.kv_dtype).keys != "int4" or n < _LEAST_TOKENS:
        return model
    seen = _read(model, tuple(token_ids[:n]))
    found: dict[str, Any] = {}
    at = 0
    for index, layer in enumerate(model.spec.layers):
        q_dim, kv_dim = layer.n_heads * layer.head_dim, layer.n_kv_heads * layer.head_dim
        q, k = seen[:, at : at + q_dim], seen[:, at + q_dim : at + q_dim + kv_dim]
        at += q_dim + kv_dim
        if not (np.isfinite(q).all() and np.isfinite(k).all()) or padded(layer.head_dim) > MOST_FED:
            continue
        values = {
            "mean": _turned_back(k, layer)[FIRST:].mean(axis=0),
            "first": k[0],
            "feedback": feedback_rows(_moments(q[FIRST:], layer)),
        }
        for part, value in values.items():
            name = f"blk.{index}.attn_k.{part}"
            found[name] = model.ops.load(_host(name, value))
    weights = Weights(dict(model.weights.items()), model.weights.seconds, found)
    return Model(model.spec, model.ops, weights, model.family)


class _Watched:
    """A backend's operations; what attention is given is kept."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self.given: list[Array] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def attention(
        self, q: Array, k: Array, v: Array, index: int, layer: LayerSpec, step: Step, prior: object
    ) -> Array:
        self.given += [q, k]
        return self._ops.attention(q, k, v, index, layer, step)


def _read(model: Model, token_ids: tuple[int, ...]) -> Float32:
    """Queries and keys of every layer side by side, [len(token_ids), features]."""

    def forward(step: Step) -> Array:
        watched = _Watched(model.ops)
        ops, spec, family = cast(Ops, watched), model.spec, model.family
        x = family.enter(ops, spec, model.weights, step)
        for index, layer in enumerate(spec.layers):
            own = model.weights.layer(index)
            x = family.decoder_layer(ops, spec, layer, own, x, index, step)
        return model.ops.stack(watched.given)

    n_pages = pages_for(len(token_ids), _PAGE)
    cache = model.ops.new_cache(model.spec, n_pages, _PAGE, "f16")
    plan = Plan((Span(0, 0, token_ids, tuple(range(n_pages)), n_logits=1),), _PAGE)
    return model.ops.to_numpy(model.ops.compile(forward)(lower(plan, cache)))


def _turned_back(k: Float32, layer: LayerSpec) -> Float64:
    """Keys as they were before their positions turned them."""
    heads = k.reshape(len(k), -1, layer.head_dim).astype(np.float64)
    if layer.rope is None:
        return heads.reshape(k.shape)
    turns = rotations(layer.rope, np.arange(len(k), dtype=np.int32))
    cos, sin = (part[:, None].astype(np.float64) for part in turns)
    size = cos**2 + sin**2  # the square of a scaling's attention factor
    first, second = turned_pairs(layer.rope)
    y = heads.copy()
    y[..., first] = (heads[..., first] * cos + heads[..., second] * sin) / size
    y[..., second] = (heads[..., second] * cos - heads[..., first] * sin) / size
    return y.reshape(k.shape)


def _moments(q: Float32, layer: LayerSpec) -> Float64:
    """Mean of q q^T over positions and the query heads of each kv head."""
    heads = q.reshape(len(q), layer.n_kv_heads, -1, layer.head_dim).astype(np.float64)
    by_head = heads.transpose(1, 0, 2, 3).reshape(layer.n_kv_heads, -1, layer.head_dim)
    return by_head.transpose(0, 2, 1) @ by_head / by_head.shape[1]


def _host(name: str, value: NDArray[Any]) -> HostTensor:
    data = np.ascontiguousarray(value, np.float32)
    return HostTensor(name, data.shape, TensorType.F32, data.reshape(-1).view(np.uint8))
