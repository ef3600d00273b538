"""PipelinedModel: in an engine, the place of a model whose layers are elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from pellucid.core.plan import Plan
from pellucid.core.record import LoadRecord
from pellucid.core.spec import ModelSpec
from pellucid.distributed.pipeline.parts import Parts
from pellucid.ops.step import Step, lower
from pellucid.ops.vocabulary import Ops

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """A weight that is not here."""

    record: LoadRecord

    @property
    def shape(self) -> tuple[int, ...]:
        return self.record.shape

    @property
    def nbytes(self) -> int:
        return self.record.nbytes


class _Weights:
    """The weights of all stages, by name."""

    def __init__(self, records: Sequence[LoadRecord]) -> None:
        self._records = {record.name: record for record in records}
        self.seconds = {record.name: record.seconds for record in records}

    def items(self) -> Iterator[tuple[str, _Elsewhere]]:
        for name, record in self._records.items():
            yield name, _Elsewhere(record)


class PipelinedOps:
    """What an engine asks of a backend outside a forward pass, asked of every stage. `own` is an
    instance of the same backend here, for what it says of itself."""

    def __init__(self, own: Ops, parts: Parts) -> None:
        self.name = own.name
        self.kv_dtype = own.kv_dtype
        self.kv_lanes = own.kv_lanes
        self.threads = own.threads
        self.instruction_set = own.instruction_set
        self._parts = parts

    def new_cache(self, spec: ModelSpec, n_pages: int, page_size: int) -> None:
        """In each stage, of its own layers."""
        self._parts.each("new_cache", n_pages, page_size)

    def copy_pages(self, cache: object, pairs: Sequence[tuple[int, int]]) -> None:
        self._parts.each("copy_pages", tuple(pairs))

    def lower(self, plan: Plan, cache: object) -> Step:
        """In the form that crosses; each stage has a cache of its own."""
        return lower(plan, cache)

    def to_numpy(self, x: Float32) -> Float32:
        return x

    def format_of(self, weight: _Elsewhere) -> str:
        return weight.record.format


class PipelinedModel:
    """Has the interface of `pellucid.models.registry.Model` that engines use. Its stages load their
    layers as it is made. Every wait for them has an end, see `pellucid.distributed.pipeline.parts`.
    """

    def __init__(self, spec: ModelSpec, own: Ops, parts: Parts) -> None:
        self.spec = spec
        self.ops = PipelinedOps(own, parts)
        parts.check_started()
        told: list[list[LoadRecord]] = parts.each("load")
        self.weights = _Weights([record for records in told for record in records])
        self._parts = parts

    def learn_keys(self, token_ids: Sequence[int]) -> None:
        """Have every stage know of its keys what a page shows, as a whole model does that has read
        it. Raises `Unavailable` if a stage has ended."""
        rows: Any = None
        for part in self._parts.all:
            rows = part.actor.learn_keys.remote(token_ids, rows)
        self._parts.value(rows)

    def logits(self, step: Step) -> Float32:
        """Logits [R, vocabulary] of a step. Raises `Unavailable` if a stage has ended."""
        return self._through(step, hidden=False)

    def hidden(self, step: Step) -> Float32:
        """What they would be read from, [R, d]."""
        return self._through(step, hidden=True)

    def stamp(self, on: bool) -> None:
        """Stages are not timed in parts."""

    def stamps(self) -> None:
        """None are known."""

    def _through(self, step: Step, *, hidden: bool) -> Float32:
        sent = ray.put(dataclasses.replace(step, cache=None))  # once for all
        rows: Any = None
        for part in self._parts.all:  # each waits for the one before it, over there
            rows = part.actor.forward.remote(sent, rows, hidden)
        found: Float32 = self._parts.value(rows)
        return found
