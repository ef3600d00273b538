"""What crosses between the processes, in forms that pickle fast and whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from pellucid.core import errors
from pellucid.core.cost import Cost
from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment
from pellucid.core.record import (
    Owned,
    PageChanges,
    PageCounts,
    Phases,
    RequestRecord,
    RoundRecord,
    SpanRecord,
    StepRecord,
    Turn,
)
from pellucid.costs import StepCosts
from pellucid.engine.ledger import Entry
from pellucid.engine.records import Cursor, Records, Unmade
from pellucid.engine.register import Marks
from pellucid.engine.stats import EngineStats


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the closed set: its class by name, its message, and its attributes."""

    kind: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Any error; one that is none of ours is said to be a fault."""
        if isinstance(error, PellucidError) and hasattr(errors, type(error).__name__):
            return cls(type(error).__name__, str(error), dict(vars(error)))
        return cls("PellucidError", f"{type(error).__name__}: {error}")

    def error(self) -> PellucidError:
        """The error as it was raised."""
        kind: type[PellucidError] = getattr(errors, self.kind)
        error = kind.__new__(kind)
        Exception.__init__(error, self.message)
        vars(error).update(self.facts)
        return error


# An increment as a tuple of its fields, in their order: a third of the time and half of the bytes.
Fields = tuple[Any, ...]


def fields_of(increment: Increment) -> Fields:
    return (
        increment.index,
        increment.text,
        increment.token_ids,
        increment.logprobs,
        increment.finish_reason,
        increment.stop_reason,
        increment.metrics,
    )


def increment_of(told: Fields) -> Increment:
    return Increment(*told)


def told_of(records: Records) -> Fields:
    """Records as plain tuples, whose types are known to both sides."""
    return (
        [_step_fields(step) for step in records.steps],
        [_request_fields(request) for request in records.requests],
        _stats_fields(records.stats),
        records.dropped,
        _cursor_fields(records.cursor),
        records.stages,
    )


def news_of(found: Unmade, stats: EngineStats | None) -> Fields:
    """The same of steps whose records are not made yet, for `records_of` with their costs. Without
    `stats` those that were told last are meant."""
    return (
        [_entry_fields(entry) for entry in found.steps],
        [_request_fields(request) for request in found.requests],
        None if stats is None else _stats_fields(stats),
        found.dropped,
        _cursor_fields(found.cursor),
        found.stages,
    )


def records_of(
    told: Fields, name_of: Callable[[str], str], costs: StepCosts | None = None
) -> Records:
    """The records again; `name_of` says what a request of that id is called here. `costs` of steps
    whose own are not told."""
    steps, requests, stats, dropped, (epoch, read, marks, number), stages = told
    return Records(
        [_step_of(step, name_of, costs) for step in steps],
        [RequestRecord(name_of(name), *rest) for name, *rest in requests],
        EngineStats(*stats),
        dropped,
        Cursor(epoch, read, Marks(*marks), number),
        stages,
    )


def _cursor_fields(cursor: Cursor) -> Fields:
    return cursor.epoch, cursor.steps, tuple(cursor.requests), cursor.stages


def count_of(told: Fields) -> int:
    """Of how many steps and requests it tells."""
    steps, requests, *_ = told
    return len(steps) + len(requests)


def stats_of(told: Fields) -> Fields | None:
    """The fields of its stats, if it tells any."""
    stats: Fields | None = told[2]
    return stats


def completed(told: Fields, stats: Fields | None, more: int) -> Fields:
    """The same with those stats, and `more` steps and requests that are not told."""
    return (*told[:2], stats, told[3] + more, *told[4:])


_request_fields = attrgetter(*(each.name for each in fields(RequestRecord)))
_stats_fields = attrgetter(*(each.name for each in fields(EngineStats)))
_cost_fields = attrgetter(*(each.name for each in fields(Cost)))
_change_fields = attrgetter(*(each.name for each in fields(PageChanges)))


def _step_fields(step: StepRecord) -> Fields:
    changes = step.changes
    return (
        step.number,
        step.start,
        tuple(step.seconds),
        [tuple(span) for span in step.spans],
        _cost_fields(step.cost),
        _change_fields(changes)[:-1],
        [tuple(owned) for owned in changes.owned],
        step.tokens,
        step.n_running,
        step.n_waiting,
        tuple(step.pages),
        step.waiting,
        [tuple(one) for one in step.rounds],
        step.stamps,
        None if step.turn is None else tuple(step.turn),
    )


def _entry_fields(entry: Entry) -> Fields:
    """As `_step_fields`, without its cost. In the engine's thread, between two steps."""
    changes = entry.changes
    return (
        entry.number,
        entry.start,
        tuple(entry.seconds),
        [(of, start, len(tokens), n_logits) for of, start, tokens, _, n_logits in entry.spans],
        None,
        _change_fields(changes)[:-1],
        [tuple(owned) for owned in changes.owned],
        entry.tokens,
        entry.n_running,
        entry.n_waiting,
        tuple(entry.pages),
        tuple(entry.waiting),
        [tuple(one) for one in entry.rounds],
        None if entry.stamps is None else entry.stamps[1],
        None if entry.turn is None else tuple(entry.turn),
    )


def _step_of(told: Fields, name_of: Callable[[str], str], costs: StepCosts | None) -> StepRecord:
    (
        number, start, seconds, places, cost, changes, owned, tokens, running, waiting, pages, why,
        rounds, stamps, turn,
    ) = told  # fmt: skip
    spans = tuple(map(SpanRecord._make, places))
    return StepRecord(
        number,
        start,
        Phases(*seconds),
        spans,
        costs.of(spans) if cost is None and costs is not None else Cost(*cost),
        PageChanges(*(*changes, [Owned(*one) for one in owned])),
        tokens,
        running,
        waiting,
        PageCounts(*pages),
        tuple([(name_of(name), reason) for name, reason in why]),
        tuple([RoundRecord(*one) for one in rounds]),
        stamps,
        None if turn is None else Turn(*turn),
    )
