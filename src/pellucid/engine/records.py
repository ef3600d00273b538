"""What crosses to whoever watches an engine: its records since the last look, and what it is.

    engine's thread: Ledger.enter --> ring of the last steps --made records, when asked--> anywhere

Nothing is sent unless somebody asks. A reader that asks too seldom misses what the ring no longer
has, which is counted; the engine never waits.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pellucid.core.record import LoadRecord, MachineRecord, RequestRecord, StepRecord
from pellucid.core.spec import ModelSpec
from pellucid.costs import kv_bytes_per_token
from pellucid.costs.stages import Stage
from pellucid.engine.engine import Engine
from pellucid.engine.memory import resident_memory
from pellucid.engine.register import Marks
from pellucid.engine.stats import EngineStats
from pellucid.models.registry import Model
from pellucid.scheduling import Limits

# So long after a look somebody counts as watching.
_ATTENTION_S: Final = 1.0


class Cursor(NamedTuple):
    """How far a reader has read the records of the engine that `epoch` tells from others."""

    epoch: int = 0
    steps: int = 0
    requests: Marks = Marks()
    stages: int = 0


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


def read_records(engine: Engine, cursor: Cursor, stamps_every: float | None = None) -> Records:
    """What was recorded since `cursor`; from any thread. `stamps_every`: have a step in so many
    seconds time the parts of its forward pass from now on (0: every step)."""
    ledger = engine.ledger
    ledger.watch(_ATTENTION_S, stamps_every=stamps_every)
    if cursor.epoch != ledger.epoch:
        cursor = Cursor(ledger.epoch)
    number = ledger.stages_number  # before what is of it, so that it is never too new
    told = ledger.register.read(cursor.requests)
    steps, lost = ledger.turned_since(cursor.steps)
    following = steps[-1].number + 1 if steps else cursor.steps
    return Records(
        steps,
        told.records,
        engine.stats(),
        told.left_out + lost,
        Cursor(ledger.epoch, following, told.next, number),
        None if number == cursor.stages else ledger.stages,
    )


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
