"""Requests in flight: their sequences in the scheduler, and what becomes of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment
from pellucid.core.plan import Plan
from pellucid.engine.choosing import Job
from pellucid.engine.generation import Generation
from pellucid.engine.ledger import Ledger
from pellucid.engine.operations import Change
from pellucid.engine.speculating import Speculation
from pellucid.scheduling import Limits, Scheduler, Sequence


class InFlight:
    """`jobs`: by sequence, whose answer it is. `changing` is for changes of the scheduler."""

    def __init__(
        self, limits: Limits, ledger: Ledger, changing: Change, speculation: Speculation | None
    ) -> None:
        self.scheduler = Scheduler(limits)
        self.speculation = speculation
        self.jobs: dict[int, Job] = {}
        self.requests_ended = 0
        self._ledger = ledger
        self.changing = changing
        self._unstarted: dict[int, Generation] = {}  # by sequence: nothing of it was computed yet
        self._ids = itertools.count()

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises `PromptTooLong` or `BadInput` if it could never run."""
        with self.changing:
            self.scheduler.add(sequence)

    def next_id(self) -> int:
        """A number for a sequence."""
        return next(self._ids)

    def enlist(self, generation: Generation) -> None:
        """Queue a sequence for each answer. Raises as `add`; some may be queued then."""
        request = generation.request
        leader: Sequence | None = None
        for answer in generation.answers:
            sequence = Sequence(
                self.next_id(),
                request.prompt_token_ids,
                request.max_tokens,
                priority=request.priority,
                salt=request.salt,
                sibling_of=leader,
            )
            self.add(sequence)
            generation.sequences.append(sequence)
            self.jobs[sequence.id] = Job(generation, answer, sequence)
            self._unstarted[sequence.id] = generation
            leader = leader or sequence
        self._ledger.register.changed(generation)

    def mark_started(self, plan: Plan, now: float) -> None:
        """The plan is about to be computed."""
        unstarted = self._unstarted
        if not unstarted:
            return
        for span in plan.spans:
            generation = unstarted.pop(span.sequence, None)
            if generation is not None:
                generation.mark_started(now, self._ledger.steps)

    def deliver(self, taken: list[tuple[Job, Increment]]) -> None:
        """What a step added to answers; those that ended leave. Within a change."""
        now = time.monotonic()
        for job, increment in taken:
            if increment.finish_reason is not None:
                self._forget(job.sequence)
                self.scheduler.finish(job.sequence)
            self._give(job.generation, increment, now)
            if increment.finish_reason is not None:  # known until it was told: a cut would hide it
                self.jobs.pop(job.sequence.id, None)

    def end(self, generation: Generation) -> None:
        """Wherever it is; nothing happens to one that has ended."""
        with self.changing:
            for sequence in generation.sequences:
                job = self.jobs.pop(sequence.id, None)
                self._forget(sequence)
                self._unstarted.pop(sequence.id, None)
                self.scheduler.finish(sequence)
                if job is not None:
                    self._give(generation, job.answer.abort(), time.monotonic())

    def fail(self, job: Job, error: PellucidError) -> None:
        """End the request, and no other, with its own trouble."""
        if job.sequence.id in self.jobs:  # a sibling's trouble may have ended it
            job.generation.fail(error)
            self.end(job.generation)

    def fail_all(self, error: PellucidError) -> None:
        """End every request with `error`."""
        for job in list(self.jobs.values()):
            self.fail(job, error)

    def start_over(self) -> None:
        """An empty scheduler takes the place of one that cannot be trusted."""
        self.scheduler = Scheduler(self.scheduler.limits)

    def waiting(self, most: int | None = None) -> list[tuple[str, str]]:
        """The requests that wait, and why, `most` sequences at the most. Of probes nothing is
        said."""
        return list(self._named(self.scheduler.waiting(most)))

    def _named(self, waiting: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
        """The same with requests' ids in place of sequences'."""
        for sequence, reason in waiting:
            job = self.jobs.get(sequence)
            if job is not None:
                yield job.generation.request.id, reason

    def _forget(self, sequence: Sequence) -> None:
        if self.speculation is not None:
            self.speculation.forget(sequence.id)

    def _give(self, generation: Generation, increment: Increment, now: float) -> None:
        generation.add(increment, now)
        if increment.metrics is not None:
            self.requests_ended += 1
