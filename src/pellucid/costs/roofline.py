"""What a step must cost at the least on a machine: the roofline.

A step that does `operations` and moves `bytes` cannot end before either is done (Williams et al.
2009): time >= max(bytes / bandwidth, operations / arithmetic). Which is larger says what bounds
it. Bytes are those of weights and the KV cache; activations stay in a processor's caches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from pellucid.core.cost import Cost
from pellucid.core.record import SpanRecord
from pellucid.core.spec import ModelSpec
from pellucid.costs.step import StepCosts, WeightSize


@dataclass(frozen=True, slots=True)
class Limits:
    """What a machine does at best: bytes read a second, operations a second on `arithmetic` (a
    multiply and an add being two). `mark`: "measured" here, or "stated" by its maker."""

    name: str
    bandwidth: float
    operations: float
    arithmetic: str
    mark: Literal["measured", "stated"]

    @property
    def ridge(self) -> float:
        """Operations a byte at which both limits meet."""
        return self.operations / self.bandwidth


@dataclass(frozen=True, slots=True)
class Bound:
    """The roofline's verdict on one step. Seconds are the least that it can take."""

    cost: Cost
    memory_seconds: float
    arithmetic_seconds: float
    ridge: float

    @property
    def bytes(self) -> int:
        return self.cost.bytes_moved

    @property
    def intensity(self) -> float:
        """Operations for each byte moved."""
        return self.cost.operations / max(self.bytes, 1)

    @property
    def seconds(self) -> float:
        return max(self.memory_seconds, self.arithmetic_seconds)

    @property
    def limited_by(self) -> Literal["memory", "arithmetic"]:
        return "memory" if self.memory_seconds >= self.arithmetic_seconds else "arithmetic"

    @property
    def verdict(self) -> str:
        """The same in words, and what it does not know."""
        known = math.isfinite(self.ridge)
        return self.limited_by if known else "memory, arithmetic not stated"


def bound(cost: Cost, limits: Limits) -> Bound:
    """The verdict on a step, or on several together."""
    return Bound(
        cost,
        cost.bytes_moved / limits.bandwidth,
        cost.operations / limits.operations,
        limits.ridge,
    )


@dataclass(frozen=True)
class Priced:
    """A model whose steps can be priced: its weights as they are stored, and its KV cache."""

    spec: ModelSpec
    weights: Mapping[str, WeightSize]
    kv_dtype: str
    kv_lanes: int = 1

    @property
    def weight_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.weights.values())

    @property
    def parameters(self) -> int:
        return sum(_elements(weight) for weight in self.weights.values())

    @property
    def matrix_bits(self) -> float:
        """Bits that a weight takes in the matrices, on average."""
        matrices = [weight for weight in self.weights.values() if len(weight.shape) > 1]
        return 8 * sum(w.nbytes for w in matrices) / max(sum(map(_elements, matrices)), 1)

    def cost(self, spans: Sequence[SpanRecord]) -> Cost:
        """The least that a step over `spans` takes: what its StepRecord would say."""
        return self._costs.of(spans)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _costs(self) -> StepCosts:
        return StepCosts(self.spec, self.weights, self.kv_dtype, self.kv_lanes)

    def prefill(self, length: int) -> Cost:
        """A prompt of `length` tokens in one step."""
        return self.cost([SpanRecord(0, 0, length, 1)])

    def decode(self, context: int, batch: int = 1, rows: int = 1) -> Cost:
        """A step of `rows` positions for each of `batch` sequences that have `context`."""
        return self.cost([SpanRecord(i, context, rows, rows) for i in range(batch)])

    def with_matrices(self, factor: float) -> Priced:
        """The same model with `factor` times as many bytes in every matrix."""
        sizes = {
            name: replace(weight, nbytes=round(weight.nbytes * factor))
            if len(weight.shape) > 1
            else weight
            for name, weight in self.weights.items()
        }
        return replace(self, weights=sizes)


def _elements(weight: WeightSize) -> int:
    number = 1
    for size in weight.shape:
        number *= size
    return number
