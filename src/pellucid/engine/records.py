"""What crosses to whoever watches an engine: its records since the last look, and what it is.

    engine's thread: Ledger.enter --> ring of the last steps --> records, where they are read

Nothing is sent unless somebody asks. A reader that asks too seldom misses what the ring no longer
has, which is counted; the engine never waits.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pellucid.core.record import LoadRecord, MachineRecord, RequestRecord, StepRecord
from pellucid.core.spec import ModelSpec
from pellucid.costs import StepCosts, WeightSize, kv_bytes_per_token
from pellucid.costs.stages import Stage
from pellucid.engine.engine import Engine
from pellucid.engine.ledger import Entry
from pellucid.engine.memory import resident_memory
from pellucid.engine.register import Marks
from pellucid.engine.stats import EngineStats
from pellucid.models.registry import Model
from pellucid.scheduling import Limits

# So long after a look somebody counts as watching.
ATTENTION_S: Final = 1.0


class Cursor(NamedTuple):
    """How far a reader has read the records of the engine that `epoch` tells from others."""

    epoch: int = 0
    steps: int = 0
    requests: Marks = Marks()
    stages: int = 0

    def or_later(self, other: Cursor) -> Cursor:
        """The further of two that were had of one engine; of two engines, this one."""
        if self.epoch != other.epoch:
            return self
        return Cursor(
            self.epoch,
            max(self.steps, other.steps),
            Marks(
                max(self.requests.changes, other.requests.changes),
                max(self.requests.ends, other.requests.ends),
                max(self.requests.running_told, other.requests.running_told),
            ),
            max(self.stages, other.stages),
        )


BEGINNING: Final = Cursor()


@dataclass(frozen=True, slots=True)
class Records:
    """Steps since the reader's last look, requests that changed or run, and the state of now.
    dropped: steps and requests that were no longer there. cursor: to look on from."""

    steps: list[StepRecord]
    requests: list[RequestRecord]
    stats: EngineStats
    dropped: int
    cursor: Cursor
    stages: tuple[Stage, ...] | None = None
    """What the steps' stamps are of, where that is not what it was at the last look."""

    def beyond(self, cursor: Cursor) -> Records:
        """Without steps that one who has read as far as `cursor` has seen."""
        steps = self.steps
        if not steps or cursor.epoch != self.cursor.epoch or steps[0].number >= cursor.steps:
            return self
        return replace(self, steps=[step for step in steps if step.number >= cursor.steps])


@dataclass(frozen=True, slots=True)
class EngineAbout:
    """What an engine is. Sizes in bytes; `monotonic` and `wall` are one moment on the clock of the
    records and on the world's (seconds since 1970). `speculation`: how tokens are guessed ahead."""

    spec: ModelSpec
    limits: Limits
    tensors: tuple[LoadRecord, ...]
    backend: str
    simd: str
    threads: int
    kv_dtype: str
    kv_lanes: int
    kv_bytes_per_token: int
    process_id: int
    resident: int
    speculation: dict[str, Any] | None
    epoch: int
    monotonic: float
    wall: float
    machine: MachineRecord | None = None
    """Its peaks, if they were measured."""


class Unmade(NamedTuple):
    """`Records` whose steps are as they left the engine: whoever reads them makes records of them,
    where the time for it is. `stats` is left out."""

    steps: list[Entry]
    requests: list[RequestRecord]
    dropped: int
    cursor: Cursor
    stages: tuple[Stage, ...] | None


def read_unmade(engine: Engine, cursor: Cursor) -> Unmade:
    """What was recorded since `cursor`; from any thread."""
    ledger = engine.ledger
    if cursor.epoch != ledger.epoch:
        cursor = Cursor(ledger.epoch)
    number = ledger.stages_number  # before what is of it, so that it is never too new
    told = ledger.register.read(cursor.requests)
    steps, lost = ledger.turned_since(cursor.steps)
    following = steps[-1].number + 1 if steps else cursor.steps
    return Unmade(
        steps,
        told.records,
        told.left_out + lost,
        Cursor(ledger.epoch, following, told.next, number),
        None if number == cursor.stages else ledger.stages,
    )


def read_records(engine: Engine, cursor: Cursor, stamps_every: float | None = None) -> Records:
    """What was recorded since `cursor`; from any thread. `stamps_every`: have a step in so many
    seconds time the parts of its forward pass from now on (0: every step)."""
    watch(engine, stamps_every)
    found = read_unmade(engine, cursor)
    steps, stats = engine.ledger.made(found.steps), engine.stats()
    return Records(steps, found.requests, stats, found.dropped, found.cursor, found.stages)


def watch(engine: Engine, stamps_every: float | None) -> None:
    """Somebody watches for a while: steps tell more, and one in `stamps_every` seconds the parts of
    its forward pass."""
    engine.ledger.watch(ATTENTION_S, stamps_every=stamps_every)


def costs_of(about: EngineAbout) -> StepCosts:
    """What steps of that engine cost at the least."""
    sizes = {one.name: WeightSize(one.shape, one.nbytes) for one in about.tensors}
    return StepCosts(about.spec, sizes, about.kv_dtype, about.kv_lanes)


def describe_engine(engine: Engine, machine: MachineRecord | None = None) -> EngineAbout:
    """What `engine` is, now, on a machine of those peaks."""
    model = engine.model
    ops, limits = model.ops, engine.scheduler.limits
    return EngineAbout(
        spec=model.spec,
        limits=limits,
        tensors=tuple(_tensors(model)),
        backend=ops.name,
        simd=ops.instruction_set,
        threads=ops.threads,
        kv_dtype=ops.kv_dtype,
        kv_lanes=ops.kv_lanes,
        kv_bytes_per_token=kv_bytes_per_token(model.spec, ops.kv_dtype, ops.kv_lanes),
        process_id=os.getpid(),
        resident=resident_memory(),
        speculation=engine.speculates,
        epoch=engine.ledger.epoch,
        monotonic=time.monotonic(),
        wall=time.time(),
        machine=machine,
    )


def _tensors(model: Model) -> list[LoadRecord]:
    return [
        LoadRecord(
            name,
            tuple(weight.shape),
            model.ops.format_of(weight),
            int(weight.nbytes),
            model.weights.seconds.get(name),
        )
        for name, weight in model.weights.items()
    ]
