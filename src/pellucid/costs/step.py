"""What a whole step of a model costs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pellucid.core.plan import Span
from pellucid.core.spec import ModelSpec
from pellucid.costs.operations import Cost, attention, embedding, experts, linear, norm

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
# Before the last attention every row counts; after it, only those whose logits are wanted.
_BEFORE_ATTENTION = re.compile(r"attn_(norm|qkv|q|k|v|q_norm|k_norm)\.")
_TABLES = ("token_embd.weight", "position_embd.weight")


@dataclass(frozen=True, slots=True)
class WeightSize:
    """A weight's shape, (out, in) for a product, and the bytes it is stored in."""

    shape: tuple[int, ...]
    nbytes: int


def step_cost(
    spec: ModelSpec,
    weights: Mapping[str, WeightSize],
    spans: Sequence[Span],
    kv_dtype: str,
    kv_lanes: int = 1,
) -> Cost:
    """The least that a step over `spans` takes.

    `weights` by GGUF's names. Raises `BadInput` for an unknown kv_dtype.
    """
    rows = sum(len(span.tokens) for span in spans)
    wanted = sum(span.n_logits for span in spans)
    total = Cost()
    for name, weight in weights.items():
        total += _weight_cost(spec, name, weight, rows, wanted)
    where = [(span.start, len(span.tokens)) for span in spans]
    for layer in spec.layers:
        total += attention(layer, where, kv_dtype, kv_lanes)
    return total


def _weight_cost(spec: ModelSpec, name: str, weight: WeightSize, rows: int, wanted: int) -> Cost:
    if name in _TABLES:
        n, features = weight.shape
        cost = embedding(rows, features, weight.nbytes // n)
        if name == "token_embd.weight" and spec.tied_head:
            cost += linear(wanted, features, n, weight.nbytes)
        return cost
    matched = _LAYER.fullmatch(name)
    if matched is None:
        early = name.startswith("token_embd")  # a norm of the embedding
        return _of_shape(name, weight, rows if early else wanted)
    index, part = int(matched[1]), matched[2]
    if index == spec.n_layers - 1 and not _BEFORE_ATTENTION.match(part):
        rows = wanted
    if len(weight.shape) == 3:
        return experts(rows, spec.layers[index], spec.d_model, weight.nbytes)
    if part.startswith(("attn_q_norm", "attn_k_norm")):
        layer = spec.layers[index]
        heads = layer.n_heads if "q_norm" in part else layer.n_kv_heads
        return norm(rows * heads, layer.head_dim, weight.nbytes)
    return _of_shape(part, weight, rows)


def _of_shape(name: str, weight: WeightSize, rows: int) -> Cost:
    if len(weight.shape) == 2:
        n_out, n_in = weight.shape
        return linear(rows, n_in, n_out, weight.nbytes)
    if name.endswith(".bias"):  # added where the product is written
        return Cost(rows * weight.shape[0], weight.nbytes if rows else 0)
    return norm(rows, weight.shape[0], weight.nbytes)
