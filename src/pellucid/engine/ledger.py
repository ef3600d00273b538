"""Ledger: what is known of an engine's steps, and its counts.

A step leaves what it has at hand; its record is made of that when somebody reads it, in the thread
that reads.
"""

from __future__ import annotations

import contextlib
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pellucid.core.plan import Span
from pellucid.core.record import (
    PageChanges,
    PageCounts,
    Phases,
    RoundRecord,
    SpanRecord,
    StepRecord,
    Turn,
)
from pellucid.costs import StepCosts, WeightSize
from pellucid.costs.stages import Stage
from pellucid.engine.register import Register
from pellucid.engine.residency import Residency
from pellucid.engine.stats import STEP_SIZES
from pellucid.models.registry import Model
from pellucid.ops.vocabulary import Stamps

logger = logging.getLogger("pellucid")

Subscriber = Callable[[StepRecord], object]

KEPT = 512


@dataclass(slots=True)
class Entry:
    """A step as it left the engine; the fields are those of `StepRecord`. `turn` comes later."""

    number: int
    start: float
    seconds: Phases
    spans: tuple[Span, ...]
    changes: PageChanges
    tokens: Mapping[int, tuple[int, ...]]
    n_running: int
    n_waiting: int
    pages: PageCounts
    waiting: Sequence[tuple[str, str]]
    rounds: tuple[RoundRecord, ...]
    stamps: Stamps | None
    turn: Turn | None = None

    def record(self, costs: StepCosts) -> StepRecord:
        """The step's record; `costs` are the model's."""
        new = tuple.__new__  # as the scheduler makes spans
        spans = tuple(
            [
                new(SpanRecord, (sequence, start, len(tokens), n_logits))
                for sequence, start, tokens, _, n_logits in self.spans
            ]
        )
        return StepRecord(
            self.number,
            self.start,
            self.seconds,
            spans,
            costs.of(spans),
            self.changes,
            self.tokens,
            self.n_running,
            self.n_waiting,
            self.pages,
            tuple(self.waiting),
            self.rounds,
            None if self.stamps is None else self.stamps[1],
            self.turn,
        )


class Ledger:
    """Keeps the last `KEPT` steps, and hands the record of each to whoever subscribed. `register`
    has the requests; `epoch` tells this ledger from another, whose steps are numbered alike.

    Subscribers are called in the thread that runs the engine, between two steps; one that raises is
    logged and called no more.
    """

    def __init__(self, model: Model) -> None:
        self.epoch = time.time_ns()
        self.register = Register()
        self.steps = 0
        self.positions = 0
        self.tokens = 0
        self.preemptions = 0
        self.step_sizes = [0] * (len(STEP_SIZES) + 1)
        self.residency = Residency()
        sizes = {
            name: WeightSize(tuple(weight.shape), int(weight.nbytes))
            for name, weight in model.weights.items()
        }
        self._costs = StepCosts(model.spec, sizes, model.ops.kv_dtype, model.ops.kv_lanes)
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._subscribers: list[Subscriber] = []
        self._watched_until = self._stamped_until = 0.0
        self._stamped_every = self._stamped_last = 0.0
        self.stages: tuple[Stage, ...] = ()
        """What the stamps of the last steps are of; `stages_number` tells one from the next."""
        self.stages_number = 0

    @property
    def records(self) -> list[StepRecord]:
        """Those of the last steps, oldest first; for any thread."""
        return [entry.record(self._costs) for entry in list(self._entries)]

    def turned_since(self, number: int) -> tuple[list[Entry], int]:
        """Steps from `number` on, as far as they were turned: the newest may be in its runner's
        hands yet. And how many of these steps are no longer there."""
        if number >= self.steps:
            return [], 0
        entries = list(self._entries)  # one call: nothing is added in its midst
        if entries and entries[-1].turn is None:
            entries.pop()
        first = entries[0].number if entries else number
        return entries[max(0, number - first) :], max(0, first - number)

    def made(self, entries: Sequence[Entry]) -> list[StepRecord]:
        """Their records."""
        return [entry.record(self._costs) for entry in entries]

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with each record from now on; the result ends that."""
        self._subscribers.append(subscriber)
        return lambda: self._drop(subscriber)

    def watch(self, seconds: float, *, stamps_every: float | None = None) -> None:
        """Somebody looks: from any thread, for so many seconds from now; at the parts of a forward
        pass in each `stamps_every` seconds too (0: of all), unless that is None."""
        until = time.monotonic() + seconds
        self._watched_until = max(self._watched_until, until)
        if stamps_every is not None:
            self._stamped_every = stamps_every
            self._stamped_until = max(self._stamped_until, until)

    def is_watched(self, now: float) -> bool:
        """Whether a step that starts `now` is to tell what costs more than a record."""
        return now < self._watched_until

    def wants_stamps(self, now: float) -> bool:
        """Whether a step that starts `now` is to time the parts of its forward pass."""
        return now < self._stamped_until and now >= self._stamped_last + self._stamped_every

    def enter(self, entry: Entry) -> None:
        """A step is done."""
        if entry.stamps is not None:
            self._stamped_last = entry.start
            if entry.stamps[0] is not self.stages:
                self.stages, self.stages_number = entry.stamps[0], self.stages_number + 1
        self._entries.append(entry)
        self.steps += 1
        positions = sum([len(span.tokens) for span in entry.spans])
        self.positions += positions
        self.step_sizes[bisect_left(STEP_SIZES, positions)] += 1
        self.tokens += sum(map(len, entry.tokens.values()))
        self.preemptions += len(entry.changes.preempted)
        self.residency.enter(entry.changes, entry.start)
        if self._subscribers:
            record = entry.record(self._costs)
            for subscriber in tuple(self._subscribers):
                self._tell(subscriber, record)

    def turned(self, turn: Turn) -> None:
        """What the runner saw of the step that was entered last."""
        self._entries[-1].turn = turn

    def _tell(self, subscriber: Subscriber, record: StepRecord) -> None:
        try:
            subscriber(record)
        except Exception:
            logger.exception("a subscriber to the steps' records failed")
            self._drop(subscriber)

    def _drop(self, subscriber: Subscriber) -> None:
        with contextlib.suppress(ValueError):  # it may have been dropped already
            self._subscribers.remove(subscriber)
