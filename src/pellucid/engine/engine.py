"""Engine: requests in, increments out, one step at a time.

A request's life:

1. `submit` checks that it can ever run and queues one sequence for each of its answers.
2. Each `step` asks the scheduler for a plan, runs the model on it, chooses a token for every
   sequence whose last known position was computed, and tells the scheduler. With speculation a
   plan also checks drafts, and a sequence may get several tokens of a step.
3. Each token becomes an increment of its answer, which goes to the request's sink.
4. At an answer's end, or at `abort`, its pages go back at once.

A step that is interrupted (Ctrl-C) was never applied: the next plan computes the same again. If
the scheduler itself was interrupted in a change, nothing in it can be trusted: every request ends
with an error, and an empty scheduler takes its place.

Several threads may use one engine; a lock makes each operation whole.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Sequence as Tokens
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import Increment
from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges, PageMap, Phases, StepRecord
from pellucid.engine.caches import new_cache
from pellucid.engine.choosing import Job, choose, first_rows, rule, take
from pellucid.engine.forks import after_fork
from pellucid.engine.generation import Generation, Sink
from pellucid.engine.ledger import Ledger
from pellucid.engine.likelihoods import Likelihoods
from pellucid.engine.probe import Probe, Scores
from pellucid.engine.request import Request
from pellucid.engine.speculating import Drafts, Speculation, rounds_of
from pellucid.engine.stats import EngineStats
from pellucid.models.registry import Model
from pellucid.ops.step import Step, lower
from pellucid.sampling import Sampler
from pellucid.scheduling import Limits, Scheduler, Sequence
from pellucid.text import Tokenizer

Float32 = NDArray[np.float32]


_REASONS = 8  # of those that wait, in a step's record
_NO_ROWS = np.empty((0, 0), np.float32)


class Engine:
    """A model, its pages, and the sequences that run on them."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        limits: Limits,
        sampler: Sampler,
        speculate: Callable[[object], Speculation] | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.scheduler = Scheduler(limits)
        self._cache = new_cache(model, limits)
        self._sampler = sampler
        self._speculation = None if speculate is None else speculate(self._cache)
        self._jobs: dict[int, Job] = {}
        self._unstarted: dict[int, Generation] = {}  # by sequence: nothing of it was computed yet
        self._probes: dict[int, Probe] = {}
        self._ids = itertools.count()
        self._stamping = False
        self._torn = False  # a change of the scheduler is under way, or was cut short
        self._unwanted: list[Generation] = []
        self._requests_ended = 0
        self.ledger = Ledger(model)
        self._closed: PellucidError | None = None
        self._lock = threading.RLock()
        self._inside = threading.Lock()  # held by an operation, by that which holds `_lock`
        after_fork(self, Engine._mend_after_fork)

    def submit(self, request: Request, sink: Sink) -> Generation:
        """Queue a request; what comes of it goes to `sink`.

        Raises `PromptTooLong` or `BadInput` if it could never run; nothing is queued then.
        """
        generation = self.prepare(request, sink)
        self.enlist(generation)
        return generation

    def prepare(self, request: Request, sink: Sink) -> Generation:
        """What `enlist` takes; waits for no step that is running."""
        return Generation(request, self.tokenizer, time.monotonic(), sink, self.ledger)

    def enlist(self, generation: Generation) -> None:
        """Queue a sequence for each answer. Raises as `submit`."""
        request = generation.request
        leader: Sequence | None = None
        with self._alone():
            self._check_open()
            try:
                for answer in generation.answers:
                    sequence = Sequence(
                        next(self._ids),
                        request.prompt_token_ids,
                        request.max_tokens,
                        priority=request.priority,
                        salt=request.salt,
                        sibling_of=leader,
                    )
                    with self._changing():
                        self.scheduler.add(sequence)
                    generation.sequences.append(sequence)
                    self._jobs[sequence.id] = Job(generation, answer, sequence)
                    self._unstarted[sequence.id] = generation
                    leader = leader or sequence
                self.ledger.register.changed(generation)
            except BaseException:
                self._unwanted.append(generation)
                raise

    def abort(self, *generations: Generation) -> None:
        """End requests wherever they are; their pages go back. Nothing happens to those that have
        ended. If this is interrupted, the next operation goes on with it."""
        with self._lock:
            self._unwanted.extend(generations)
            if (
                not self._inside.locked()
            ):  # else a stream was collected as garbage in the middle of something
                with self._alone():
                    pass

    def run_until(self, done: Callable[[], bool]) -> None:
        """Run steps until `done`, for which something must have been submitted."""
        while not done():
            with self._lock:
                if not done() and not self.step():
                    raise RuntimeError("nothing is planned, and somebody waits")

    def step(self) -> bool:
        """Compute what the scheduler plans next, for all requests; False if that is nothing."""
        with self._alone():
            start = time.monotonic()
            with self._changing():
                if self._speculation is None:
                    plan = self.scheduler.plan()
                else:
                    wanted = self._speculation.ask(self.scheduler.decoding, self._jobs)
                    plan = self.scheduler.plan(wanted)
            if not plan.spans:
                return False
            self._run(plan, start)
            return True

    @property
    def records(self) -> Collection[StepRecord]:
        """The records of the last steps, oldest first."""
        return self.ledger.records

    def subscribe(self, subscriber: Callable[[StepRecord], object]) -> Callable[[], None]:
        """Have `subscriber` called with the record of each step from now on, in the thread that
        runs the engine; what it raises is logged, and ends it. The result ends it too."""
        return self.ledger.subscribe(subscriber)

    @property
    def speculates(self) -> dict[str, Any] | None:
        """How tokens are guessed ahead, as `SpeculativeSettings.told`; None if they are not."""
        return None if self._speculation is None else self._speculation.told

    def waiting(self) -> list[tuple[str, str]]:
        """The requests that wait, and why: (request id, reason), an entry for each answer. Of
        probes nothing is said."""
        with self._alone():
            return list(self._named(self.scheduler.waiting()))

    def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        """Who owns which page after the steps before the number that comes with it."""
        with self._alone():
            return self.ledger.steps, self.scheduler.page_map(with_tokens=with_tokens)

    def stats(self) -> EngineStats:
        """What there is now, and what was counted; for any thread."""
        scheduler, ledger = self.scheduler, self.ledger
        pages = scheduler.page_counts()
        guessed = {} if self._speculation is None else self._speculation.stats()
        return EngineStats(
            running_sequences=scheduler.n_running,
            waiting_sequences=scheduler.n_waiting,
            pages_free=pages.free,
            pages_cached=pages.cached,
            pages_owned=pages.owned,
            prefix_queries=scheduler.prefix_queries,
            prefix_hits=scheduler.prefix_hits,
            steps=ledger.steps,
            positions_computed=ledger.positions,
            tokens_generated=ledger.tokens,
            requests_ended=self._requests_ended,
            preemptions=ledger.preemptions,
            step_sizes=tuple(ledger.step_sizes),
            **guessed,
        )

    @property
    def idle(self) -> bool:
        """True if there is nothing to do."""
        return self.scheduler.idle

    def logits(self, token_ids: Tokens[int]) -> Float32:
        """Scores of every position, float32 [len(token_ids), vocabulary].

        Raises `PromptTooLong` for more tokens than the context holds.
        """
        scores = Scores(token_ids, self.model.spec.vocab_size)
        self.probe([scores])
        return scores.rows

    def likelihoods(
        self, token_ids: Tokens[int], count: int, salt: bytes, first: int = 1
    ) -> Likelihoods:
        """A probe for how likely each token of a prompt is, from number `first` on."""
        return Likelihoods(token_ids, count, self._sampler.not_tokens, salt, first)

    @property
    def sampler(self) -> Sampler:
        """What chooses tokens."""
        return self._sampler

    def probe(self, probes: Tokens[Probe]) -> None:
        """Run steps until each has all that it is to have. Raises as `logits`."""
        try:
            for probe in probes:
                self.start_probe(probe)
            for probe in probes:
                self.run_until(lambda: probe.finished)  # noqa: B023 - called before the next
                probe.check()
        finally:
            for probe in probes:
                self.stop_probe(probe)

    def start_probe(self, probe: Probe) -> None:
        """Queue a probe. Raises `PromptTooLong` for more tokens than the context holds."""
        with self._alone():
            self._check_open()
            sequence = Sequence(
                next(self._ids),
                probe.token_ids,
                0,
                all_logits=probe.every,
                salt=probe.salt,
                first_logit=probe.first,
            )
            probe.sequence = sequence
            with self._changing():
                self.scheduler.add(sequence)
            self._probes[sequence.id] = probe

    def stop_probe(self, probe: Probe) -> None:
        """End it wherever it is."""
        with self._alone():
            if probe.sequence is not None:
                with self._changing():
                    self._probes.pop(probe.sequence.id, None)
                    self.scheduler.finish(probe.sequence)

    def fail_all(self, error: PellucidError) -> None:
        """End every request and every probe with `error`."""
        with self._alone():
            for job in list(self._jobs.values()):
                if job.sequence.id in self._jobs:  # not ended beside a sibling
                    job.generation.fail(error)
                    self._end(job.generation)
            for probe in list(self._probes.values()):
                self.stop_probe(probe)
                probe.fail(error)

    def close(self, error: PellucidError) -> None:
        """End everything with `error`, and refuse with it whatever comes later."""
        with self._alone():
            self._closed = error
            self.fail_all(error)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One operation of one thread, on a scheduler that is whole. Requests that are to end
        meanwhile end after it."""
        # Of locks Python itself takes back, whatever line an interrupt falls on.
        with self._lock:
            if self._inside.locked():  # a part of a larger operation
                yield
                return
            with self._inside:
                try:
                    self._tidy()
                    yield
                finally:
                    self._tidy()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """A change of the scheduler, which is torn if this is cut short. `BadInput` is a refusal:
        nothing was changed."""
        before, self._torn = self._torn, True
        try:
            yield
        except BadInput:
            self._torn = before
            raise
        self._torn = before

    def _tidy(self) -> None:
        if self._torn:
            self._start_over()
        while self._unwanted:
            self._end(self._unwanted.pop())

    def _mend_after_fork(self) -> None:
        """In a child; what another thread was in the middle of, nobody ends there."""
        if self._lock.acquire(blocking=False):  # this thread's own, or nobody's
            self._lock.release()
            return
        self._lock, self._inside = threading.RLock(), threading.Lock()
        self._torn = True

    def _start_over(self) -> None:
        """No request can be trusted to go on: pages may be miscounted, and positions have moved
        without their tokens."""
        self.scheduler = Scheduler(self.scheduler.limits)
        self.ledger.pages_anew()
        self.fail_all(PellucidError("interrupted in the middle of a step: ask again"))
        self._torn = False

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def _run(self, plan: Plan, start: float) -> None:
        changes, planned = self.scheduler.changes, time.monotonic()
        if self._unstarted:
            self._mark_started(plan, start)
        if plan.copies:
            self.model.ops.copy_pages(self._cache, plan.copies)
        copied = time.monotonic()
        plan, drafts = self._drafted(plan, changes)
        drafted = time.monotonic()
        scored, hidden = self._apart(plan)
        step = lower(scored, self._cache)
        lowered = time.monotonic()
        if hidden.spans:
            self._keep(hidden, self._hidden(lower(hidden, self._cache)))
        stamping = self.ledger.wants_stamps(start)
        if stamping is not self._stamping:
            self._stamping = stamping
            self.model.stamp(stamping)
        logits = self._forward(step) if scored.spans else _NO_ROWS
        computed = time.monotonic()
        if self._probes:
            self._keep(scored, logits)
        jobs = self._jobs
        guessing = self._speculation
        by = rule(self._sampler, rejecting=guessing is not None and guessing.rejecting)
        chosen = choose(by, logits, first_rows(scored, jobs, drafts), jobs, self._fail)
        sampled = time.monotonic()
        with self._changing():
            taken = take(by, logits, chosen, jobs, self._fail)
            tokens = {job.sequence.id: tuple(added.token_ids) for job, added in taken}
            self.scheduler.apply(plan, tokens)
            rounds = rounds_of(drafts, tokens)
            for one in rounds:
                if one.sequence in jobs:
                    jobs[one.sequence].generation.checked(one)
            self._deliver(taken)
        seconds = Phases(
            planned - start,
            drafted - copied,
            lowered - drafted + copied - planned,
            computed - lowered,
            sampled - computed,
            time.monotonic() - sampled,
        )
        if self._speculation is not None:
            self._speculation.learn(plan, rounds, tokens, jobs, seconds)
        waiting = self._some_waiting() if self.ledger.is_watched(start) else ()
        stamps = self.model.stamps() if stamping and scored.spans else None
        self.ledger.enter(
            start, seconds, plan, changes, tokens, self.scheduler, waiting, rounds, stamps
        )

    def _drafted(self, plan: Plan, changes: PageChanges) -> tuple[Plan, Drafts]:
        if self._speculation is None:
            return plan, {}
        return self._speculation.draft(plan, changes, self._jobs)

    def _end(self, generation: Generation) -> None:
        with self._changing():
            for sequence in generation.sequences:
                job = self._jobs.pop(sequence.id, None)
                self._forget(sequence)
                self._unstarted.pop(sequence.id, None)
                self.scheduler.finish(sequence)
                if job is not None:
                    self._give(generation, job.answer.abort(), time.monotonic())

    def _named(self, waiting: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
        """The same with requests' ids in place of sequences'."""
        for sequence, reason in waiting:
            job = self._jobs.get(sequence)
            if job is not None:
                yield job.generation.request.id, reason

    def _some_waiting(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._named(self.scheduler.waiting(_REASONS)))

    def _mark_started(self, plan: Plan, now: float) -> None:
        for span in plan.spans:
            generation = self._unstarted.pop(span.sequence, None)
            if generation is not None:
                generation.mark_started(now, self.ledger.steps)

    def _apart(self, plan: Plan) -> tuple[Plan, Plan]:
        """What gives logits, and what gives hidden rows: a forward pass each."""
        nothing = Plan((), plan.page_size)
        if not self._probes:
            return plan, nothing
        hidden = {id for id, probe in self._probes.items() if probe.hidden}
        if not hidden:
            return plan, nothing
        parts = [
            tuple(span for span in plan.spans if (span.sequence in hidden) == wanted)
            for wanted in (False, True)
        ]
        return Plan(parts[0], plan.page_size), Plan(parts[1], plan.page_size)

    def _forward(self, step: Step) -> Float32:
        return self.model.ops.to_numpy(self.model.logits(step))

    def _hidden(self, step: Step) -> Float32:
        return self.model.ops.to_numpy(self.model.hidden(step))

    def _fail(self, job: Job, error: PellucidError) -> None:
        """End the request, and no other, with its own trouble."""
        if job.sequence.id in self._jobs:  # a sibling's trouble may have ended it
            job.generation.fail(error)
            self._end(job.generation)

    def _keep(self, plan: Plan, rows: Float32) -> None:
        """Give the probes in `plan` their rows."""
        row = 0
        for span in plan.spans:
            row += span.n_logits
            probe = self._probes.get(span.sequence)
            if probe is not None:
                probe.keep(span.end, rows[row - span.n_logits : row])
                if probe.finished:
                    self.stop_probe(probe)

    def _deliver(self, taken: list[tuple[Job, Increment]]) -> None:
        now = time.monotonic()
        for job, increment in taken:
            if increment.finish_reason is not None:
                del self._jobs[job.sequence.id]
                self._forget(job.sequence)
                self.scheduler.finish(job.sequence)
            self._give(job.generation, increment, now)

    def _forget(self, sequence: Sequence) -> None:
        if self._speculation is not None:
            self._speculation.forget(sequence.id)

    def _give(self, generation: Generation, increment: Increment, now: float) -> None:
        generation.add(increment, now)
        if increment.metrics is not None:
            self._requests_ended += 1
