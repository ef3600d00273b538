"""What a part of a forward pass costs: a stage, as a backend runs it, described once as plain data.

The operations that a step's cost counts are counted alike here, so that the stages' weights and
keys and values add up to the step's. Operations on single features (rotations, additions, what
quantises rows), which the step's leaves out, are counted by the passes that they make over a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal

from pellucid.core.cost import Cost
from pellucid.core.spec import ModelSpec
from pellucid.costs.operations import attention, embedding, experts, linear, norm

PartKind = Literal["linear", "bias", "norm", "embedding", "attend", "store", "experts", "rows"]

_FLOAT = 4


@dataclass(frozen=True, slots=True)
class Part:
    """One operation of a stage. `wanted`: of the rows that logits are asked for, else of all.

    n_in, n_out: features of a row before and after (of a norm and an embedding, n_out). nbytes: of
    its weight as stored (an embedding: of a row of it). layer: of attention and experts.
    """

    kind: PartKind
    wanted: bool = False
    n_in: int = 0
    n_out: int = 0
    nbytes: int = 0
    layer: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs between two barriers, or one operation where there are none. `layer` None: of no
    layer."""

    op: str
    layer: int | None
    parts: tuple[Part, ...]


Spans = Sequence[tuple[int, int]]


class StageCosts:
    """The costs of a model's stages, step after step. Parts that are alike are counted once."""

    def __init__(
        self, spec: ModelSpec, stages: Iterable[Stage], kv_dtype: str, kv_lanes: int
    ) -> None:
        self.stages = tuple(stages)
        self._spec = spec
        self._kv_form = kv_dtype, kv_lanes
        kinds: dict[object, int] = {}
        self._kinds = [
            kinds.setdefault(tuple(map(self._key, stage.parts)), len(kinds))
            for stage in self.stages
        ]
        """For each stage the number of its kind; all of one kind cost the same."""
        self._firsts = [self.stages[self._kinds.index(kind)] for kind in range(len(kinds))]

    def of(self, spans: Spans, wanted: int) -> list[Cost]:
        """Of each stage in a step over `spans` (start, length) with `wanted` rows of logits; those
        of one kind are one object."""
        rows = sum(length for _, length in spans)
        costs = [
            reduce(add, (self._part(part, rows, wanted, spans) for part in stage.parts), Cost())
            for stage in self._firsts
        ]
        return [costs[kind] for kind in self._kinds]

    def _key(self, part: Part) -> object:
        """Equal for parts that cost the same in every step."""
        of_layer = part.kind in ("attend", "store", "experts")
        layer = self._spec.layers[part.layer] if of_layer else None
        return part.kind, part.wanted, part.n_in, part.n_out, part.nbytes, layer

    def _part(self, part: Part, rows: int, wanted: int, spans: Spans) -> Cost:
        rows = wanted if part.wanted else rows
        match part.kind:
            case "linear":
                return linear(rows, part.n_in, part.n_out, part.nbytes)
            case "bias":
                return Cost(rows * part.n_out, part.nbytes if rows else 0)
            case "norm":
                return norm(rows, part.n_out, part.nbytes)
            case "embedding":
                return embedding(rows, part.n_out, part.nbytes)
            case "experts":
                layer = self._spec.layers[part.layer]
                return experts(rows, layer, self._spec.d_model, part.nbytes)
            case "rows":
                return _rows(rows, part)
        whole = attention(self._spec.layers[part.layer], spans, *self._kv_form)
        if part.kind == "store":
            return Cost(kv_written=whole.kv_written)
        return Cost(
            whole.operations,
            kv_read=whole.kv_read,
            activations_read=whole.activations_read,
            activations_written=whole.activations_written,
        )


def _rows(rows: int, part: Part) -> Cost:
    return Cost(
        operations=rows * max(part.n_in, part.n_out),
        activations_read=_FLOAT * rows * part.n_in,
        activations_written=_FLOAT * rows * part.n_out,
    )
