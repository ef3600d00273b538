"""Ledger: the records of an engine's steps, and its counts."""

from __future__ import annotations

import contextlib
import logging
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from pellucid.core.plan import Plan
from pellucid.core.record import (
    Owned,
    PageChanges,
    Phases,
    RoundRecord,
    SpanRecord,
    StepRecord,
    Turn,
)
from pellucid.costs import StepCosts, WeightSize
from pellucid.costs.stages import Stage
from pellucid.engine.register import Register
from pellucid.engine.stats import STEP_SIZES
from pellucid.models.registry import Model
from pellucid.ops.vocabulary import Stamps
from pellucid.scheduling import Scheduler

logger = logging.getLogger("pellucid")

Subscriber = Callable[[StepRecord], object]

KEPT = 512


class Ledger:
    """Keeps the last `KEPT` records, and hands each to whoever subscribed. `register` has the
    requests; `epoch` tells this ledger from another, whose steps are numbered alike.

    Subscribers are called in the thread that runs the engine, between two steps; one that raises is
    logged and called no more.
    """

    def __init__(self, model: Model) -> None:
        self.epoch = time.time_ns()
        self.records: deque[StepRecord] = deque(maxlen=KEPT)
        self.register = Register()
        self.steps = 0
        self.positions = 0
        self.tokens = 0
        self.preemptions = 0
        self.step_sizes = [0] * (len(STEP_SIZES) + 1)
        sizes = {
            name: WeightSize(tuple(weight.shape), int(weight.nbytes))
            for name, weight in model.weights.items()
        }
        self._costs = StepCosts(model.spec, sizes, model.ops.kv_dtype, model.ops.kv_lanes)
        self._subscribers: list[Subscriber] = []
        self._watched_until = self._stamped_until = 0.0
        self.stages: tuple[Stage, ...] = ()
        """What the stamps of the last steps are of; `stages_number` tells one from the next."""
        self.stages_number = 0
        self._tables: dict[int, tuple[int, ...]] = {}

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with each record from now on; the result ends that."""
        self._subscribers.append(subscriber)
        return lambda: self._drop(subscriber)

    def watch(self, seconds: float, *, stamps: bool = False) -> None:
        """Somebody looks: from any thread, for so many seconds from now. `stamps`: at the parts of
        forward passes too."""
        until = time.monotonic() + seconds
        self._watched_until = max(self._watched_until, until)
        if stamps:
            self._stamped_until = max(self._stamped_until, until)

    def is_watched(self, now: float) -> bool:
        """Whether a step that starts `now` is to tell what costs more than a record."""
        return now < self._watched_until

    def wants_stamps(self, now: float) -> bool:
        """Whether a step that starts `now` is to time the parts of its forward pass."""
        return now < self._stamped_until

    def enter(
        self,
        start: float,
        seconds: Phases,
        plan: Plan,
        changes: PageChanges,
        tokens: dict[int, tuple[int, ...]],
        scheduler: Scheduler,
        waiting: tuple[tuple[str, str], ...] = (),
        rounds: tuple[RoundRecord, ...] = (),
        stamps: Stamps | None = None,
    ) -> None:
        """A step is done."""
        spans = tuple(
            [
                SpanRecord(sequence, begin, len(given), n_logits)
                for sequence, begin, given, _, n_logits in plan.spans
            ]
        )
        cost = self._costs.of(spans)
        record = StepRecord(
            self.steps,
            start,
            seconds,
            spans,
            cost,
            changes,
            tokens,
            scheduler.n_running,
            scheduler.n_waiting,
            scheduler.page_counts(),
            self._owned(plan, changes),
            waiting,
            rounds,
            None if stamps is None else self._stamped(stamps),
        )
        self.records.append(record)
        self.steps += 1
        positions = sum([span.n_tokens for span in spans])
        self.positions += positions
        self.step_sizes[bisect_left(STEP_SIZES, positions)] += 1
        self.tokens += sum(map(len, tokens.values()))
        self.preemptions += len(changes.preempted)
        for subscriber in tuple(self._subscribers):
            self._tell(subscriber, record)

    def _stamped(self, stamps: Stamps) -> array[float]:
        stages, seconds = stamps
        if stages is not self.stages:
            self.stages, self.stages_number = stages, self.stages_number + 1
        return seconds

    def pages_anew(self) -> None:
        """Nobody owns any page."""
        self._tables.clear()

    def _owned(self, plan: Plan, changes: PageChanges) -> tuple[Owned, ...]:
        """What the plan's sequences own that they did not own before."""
        tables = self._tables
        for sequence in (*changes.ended, *changes.preempted):
            tables.pop(sequence, None)
        if not changes.taken and not changes.shared:
            return ()
        found = []
        for span in plan.spans:
            before, pages = tables.get(span.sequence, ()), span.pages
            if pages is not before:
                tables[span.sequence] = pages
                first = _common(before, pages)
                if first < len(pages):
                    found.append(Owned(span.sequence, first, pages[first:]))
        return tuple(found)

    def turned(self, turn: Turn) -> None:
        """What the runner saw of the step that was entered last."""
        self.records[-1].turn = turn

    def _tell(self, subscriber: Subscriber, record: StepRecord) -> None:
        try:
            subscriber(record)
        except Exception:
            logger.exception("a subscriber to the steps' records failed")
            self._drop(subscriber)

    def _drop(self, subscriber: Subscriber) -> None:
        with contextlib.suppress(ValueError):  # it may have been dropped already
            self._subscribers.remove(subscriber)


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many of the first are the same; mostly all of the shorter."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
