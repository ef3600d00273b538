"""What is told of replicas, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pellucid.engine.stats import EngineStats


@dataclass(frozen=True, slots=True)
class Report:
    """What one replica says of itself. `node` is Ray's name of where it is."""

    name: str
    node: str
    process_id: int
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas that answer, as of now, and in `stats` what all that there were have counted.
    There are to be from `least` to `most`; `silent` names those that are there and do not say how
    they are, `trouble` why there are fewer, where that is known. `placed` counts
    requests by why they went where they went, `retried` those that were asked of another replica
    after theirs had ended, `lost` those that ended with theirs; `started` counts replicas after the
    first ones."""

    least: int
    most: int
    reports: tuple[Report, ...]
    stats: EngineStats
    silent: tuple[str, ...] = ()
    trouble: str | None = None
    placed: Mapping[str, int] = field(default_factory=dict)
    retried: int = 0
    lost: int = 0
    started: int = 0
