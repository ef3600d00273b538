"""What a model's keys and queries are like, seen in a text: so that few bits suffice for keys.

The model reads a text once, its keys and values in half precision, and its queries and keys are
looked at as attention meets them. See `ops/key_prior.py` for what they are good for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec, ModelSpec, RopeSpec
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
_ANYWHERE = np.arange(FIRST, 1024, 16, dtype=np.int32)  # positions


def with_key_prior(model: Model, token_ids: Sequence[int]) -> Model:
    """`model`, knowing of its keys what the first `MOST_TOKENS` of `token_ids` show.

    The same model where its cache does not keep keys in int4, where the tokens are too few, or
    where they make no numbers of a layer.
    """
    tokens = telling_tokens(model.spec, model.ops, token_ids)
    if not tokens:
        return model
    spec, family = model.spec, model.family

    def through(ops: Ops, step: Step) -> Array:
        x = family.enter(ops, spec, model.weights, step)
        for index, layer in enumerate(spec.layers):
            x = family.decoder_layer(ops, spec, layer, model.weights.layer(index), x, index, step)
        return x

    seen, _ = read_layers(spec, model.ops, tokens, through, rows_too=False)
    weights = knowing(model.weights, spec, model.ops, seen)
    return Model(spec, model.ops, weights, family)


def telling_tokens(spec: ModelSpec, ops: Ops, token_ids: Sequence[int]) -> tuple[int, ...]:
    """Those of `token_ids` that are read; none where nothing is to be learned."""
    n = min(len(token_ids), MOST_TOKENS, spec.context_length)
    if kv_types(ops.kv_dtype).keys != "int4" or n < _LEAST_TOKENS:
        return ()
    return tuple(token_ids[:n])


def read_layers(
    spec: ModelSpec,
    ops: Ops,
    tokens: tuple[int, ...],
    through: Callable[[Ops, Step], Array],
    *,
    rows_too: bool,
) -> tuple[Float32, Float32]:
    """Queries and keys of all of `spec`'s layers side by side, [len(tokens), features], and with
    `rows_too` what they end in, [len(tokens), d]. `through` takes a step through them by the
    operations that it is given."""

    def forward(step: Step) -> Array:
        watched = _Watched(ops)
        x = through(cast(Ops, watched), step)
        return ops.stack([*watched.given, x] if rows_too else watched.given)

    n_pages = pages_for(len(tokens), _PAGE)
    cache = ops.new_cache(spec, n_pages, _PAGE, "f16")
    plan = Plan((Span(0, 0, tokens, tuple(range(n_pages)), n_logits=1),), _PAGE)
    found = ops.to_numpy(ops.compile(forward)(lower(plan, cache)))
    features = sum((one.n_heads + one.n_kv_heads) * one.head_dim for one in spec.layers)
    return found[:, :features], found[:, features:]


def knowing(weights: Weights, spec: ModelSpec, ops: Ops, seen: Float32, first: int = 0) -> Weights:
    """`weights` with what `seen` says of the keys of `spec`'s layers, the first of them number
    `first`."""
    found: dict[str, Any] = {}
    at = 0
    for index, layer in enumerate(spec.layers, first):
        q_dim, kv_dim = layer.n_heads * layer.head_dim, layer.n_kv_heads * layer.head_dim
        q, k = seen[:, at : at + q_dim], seen[:, at + q_dim : at + q_dim + kv_dim]
        at += q_dim + kv_dim
        if not (np.isfinite(q).all() and np.isfinite(k).all()) or padded(layer.head_dim) > MOST_FED:
            continue
        values = {
            "mean": _turned_back(k, layer)[FIRST:].mean(axis=0, dtype=np.float64),
            "first": k[0],
            "feedback": feedback_rows(_likely_moments(q, layer)),
        }
        for part, value in values.items():
            name = f"blk.{index}.attn_k.{part}"
            found[name] = ops.load(_host(name, value))
    return Weights(dict(weights.items()), weights.seconds, found)


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


def _turned_back(k: Float32, layer: LayerSpec) -> Float32:
    """Keys (or queries) as they were before their positions turned them."""
    heads = k.reshape(len(k), -1, layer.head_dim)
    if layer.rope is None:
        return k
    cos, sin = (part[:, None] for part in rotations(layer.rope, np.arange(len(k), dtype=np.int32)))
    size = cos**2 + sin**2  # the square of a scaling's attention factor
    first, second = turned_pairs(layer.rope)
    y = heads.copy()
    y[..., first] = (heads[..., first] * cos + heads[..., second] * sin) / size
    y[..., second] = (heads[..., second] * cos - heads[..., first] * sin) / size
    return y.reshape(k.shape)


def _likely_moments(q: Float32, layer: LayerSpec) -> Float64:
    """What q q^T is in the mean, by half as these queries are and by half as they would be anywhere
    else: a page has few of them, and what one asks for it may ask at any position."""
    here = _moments(q[FIRST:], layer)
    if layer.rope is None:
        return here
    elsewhere = _moments(_turned_back(q, layer)[FIRST:], layer)
    return (here + _mean_turned(elsewhere, layer.rope)) / 2


def _mean_turned(moments: Float64, rope: RopeSpec) -> Float64:
    """Mean of R M R^T, R the turn of a position, over `_ANYWHERE`; moments [heads, dim, dim].

    A turn makes of feature d: c[d] x[d] + s[d] x[partner[d]]; what is not turned has c = 1, s = 0.
    """
    dim = moments.shape[-1]
    first, second = turned_pairs(rope)
    partner = np.arange(dim)
    partner[first], partner[second] = np.arange(dim)[second], np.arange(dim)[first]
    c, s = np.ones((len(_ANYWHERE), dim)), np.zeros((len(_ANYWHERE), dim))
    c[:, first], sin = rotations(rope, _ANYWHERE)
    c[:, second] = c[:, first]
    s[:, first], s[:, second] = -sin, sin
    cc, cs, ss = (x.T @ y / len(_ANYWHERE) for x, y in ((c, c), (c, s), (s, s)))
    by_rows = moments[:, partner]
    found: Float64 = cc * moments + cs * moments[:, :, partner] + cs.T * by_rows
    found += ss * by_rows[:, :, partner]
    return found


def _moments(q: Float32, layer: LayerSpec) -> Float64:
    """Mean of q q^T over positions and the query heads of each kv head."""
    heads = q.reshape(len(q), layer.n_kv_heads, -1, layer.head_dim)
    by_head = heads.transpose(1, 0, 2, 3).reshape(layer.n_kv_heads, -1, layer.head_dim)
    sums: Float32 = by_head.transpose(0, 2, 1) @ by_head
    return sums.astype(np.float64) / by_head.shape[1]


def _host(name: str, value: NDArray[Any]) -> HostTensor:
    data = np.ascontiguousarray(value, np.float32)
    return HostTensor(name, data.shape, TensorType.F32, data.reshape(-1).view(np.uint8))
