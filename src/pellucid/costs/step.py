"""What a whole step of a model costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pellucid.core.cost import Cost
from pellucid.core.plan import Span
from pellucid.core.record import SpanRecord
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs.operations import attention, embedding, experts, linear, norm

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
# Before the last attention every row counts; after it, only those whose logits are wanted.
_BEFORE_ATTENTION = re.compile(r"attn_(norm|qkv|q|k|v|q_norm|k_norm)\.")
_TABLES = ("token_embd.weight", "position_embd.weight")


@dataclass(frozen=True, slots=True)
class WeightSize:
    """A weight's shape, (out, in) for a product, and the bytes it is stored in."""

    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A weight's place: its name within a layer, that layer, and which rows come to it."""

    name: str
    weight: WeightSize
    layer: LayerSpec | None
    wanted_rows: bool


class StepCosts:
    """The least that steps of one model take, quick to ask step after step.

    `weights` by GGUF's names. Layers that are alike are counted once and multiplied.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Mapping[str, WeightSize],
        kv_dtype: str,
        kv_lanes: int = 1,
    ) -> None:
        self._spec = spec
        self._kv_form = kv_dtype, kv_lanes
        self._parts = Counter(_part(spec, name, weight) for name, weight in weights.items())
        self._layers = Counter(spec.layers)
        self._of_weights = lru_cache(maxsize=1024)(self._weights_cost)

    def of(self, spans: Iterable[SpanRecord]) -> Cost:
        """The cost of a step over `spans`."""
        rows = wanted = 0
        where: list[tuple[int, int]] = []
        for _, start, length, n_logits in spans:
            rows += length
            wanted += n_logits
            where.append((start, length))
        total = self._of_weights(rows, wanted)
        for layer, count in self._layers.items():
            total += attention(layer, where, *self._kv_form) * count
        return total

    def _weights_cost(self, rows: int, wanted: int) -> Cost:
        total = Cost()
        for part, count in self._parts.items():
            total += _part_cost(self._spec, part, rows, wanted) * count
        return total


def step_cost(
    spec: ModelSpec,
    weights: Mapping[str, WeightSize],
    spans: Sequence[Span],
    kv_dtype: str,
    kv_lanes: int = 1,
) -> Cost:
    """The least that one step over `spans` takes; `StepCosts` for many.

    Raises `BadInput` for an unknown kv_dtype.
    """
    return StepCosts(spec, weights, kv_dtype, kv_lanes).of(map(SpanRecord.of, spans))


def _part(spec: ModelSpec, name: str, weight: WeightSize) -> _Part:
    matched = _LAYER.fullmatch(name)
    if matched is None:
        early = name.startswith("token_embd")  # the table, or a norm of the embedding
        return _Part(name, weight, None, not early)
    index, part = int(matched[1]), matched[2]
    last = index == spec.n_layers - 1
    return _Part(part, weight, spec.layers[index], last and not _BEFORE_ATTENTION.match(part))


def _part_cost(spec: ModelSpec, part: _Part, rows: int, wanted: int) -> Cost:
    weight, layer = part.weight, part.layer
    if layer is None and part.name in _TABLES:
        n, features = weight.shape
        cost = embedding(rows, features, weight.nbytes // n)
        if part.name == "token_embd.weight" and spec.tied_head:
            cost += linear(wanted, features, n, weight.nbytes)
        return cost
    if part.wanted_rows:
        rows = wanted
    if layer is not None and len(weight.shape) == 3:
        return experts(rows, layer, spec.d_model, weight.nbytes)
    if layer is not None and part.name.startswith(("attn_q_norm", "attn_k_norm")):
        heads = layer.n_heads if "q_norm" in part.name else layer.n_kv_heads
        return norm(rows * heads, layer.head_dim, weight.nbytes)
    return _of_shape(part.name, weight, rows)


def _of_shape(name: str, weight: WeightSize, rows: int) -> Cost:
    if len(weight.shape) == 2:
        n_out, n_in = weight.shape
        return linear(rows, n_in, n_out, weight.nbytes)
    if name.endswith(".bias"):  # added where the product is written
        return Cost(rows * weight.shape[0], weight.nbytes if rows else 0)
    return norm(rows, weight.shape[0], weight.nbytes)
