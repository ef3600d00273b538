"""What a step did, as plain data: its times, its cost, its tokens, its page changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pellucid.core.cost import Cost
from pellucid.core.plan import Span


@dataclass(slots=True)
class PageChanges:
    """What happened to pages between two plans. Pages are listed by number, in order.

    taken: free pages that a sequence owns now. shared: pages of cached or forked positions that
    one more sequence owns. cached: full pages that went into the prefix cache. released: pages that
    lost their last owner; those in the prefix cache stay there, the others are free. evicted: pages
    dropped from the prefix cache, free now. copied: (source, destination). preempted: sequence id
    to the positions that it will have to compute again.
    """

    taken: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    copied: list[tuple[int, int]] = field(default_factory=list)
    preempted: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageCounts:
    """How many pages are free, kept by the prefix cache alone, and owned by sequences."""

    free: int
    cached: int
    owned: int


class SpanRecord(NamedTuple):
    """A span that a step computed: `n_tokens` positions of a sequence from `start` on, with
    `n_logits` rows of logits."""

    sequence: int
    start: int
    n_tokens: int
    n_logits: int

    @staticmethod
    def of(span: Span) -> SpanRecord:
        return SpanRecord(span.sequence, span.start, len(span.tokens), span.n_logits)


class Phases(NamedTuple):
    """Seconds of a step's parts: the plan, its arrays and page copies, the model's forward pass,
    the choice of tokens, and what came of them (positions moved, text, increments)."""

    schedule: float
    lower: float
    forward: float
    sample: float
    deliver: float


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step, as it was.

    number counts from 0; start is in seconds of `time.monotonic`. cost is the least that its spans
    take. tokens: sequence id to the token chosen. n_running and n_waiting count sequences after it.
    """

    number: int
    start: float
    seconds: Phases
    spans: tuple[SpanRecord, ...]
    cost: Cost
    changes: PageChanges
    tokens: Mapping[int, int]
    n_running: int
    n_waiting: int

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds)
