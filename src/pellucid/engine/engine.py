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

import time
from collections.abc import Callable, Collection
from collections.abc import Sequence as Tokens
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.core.record import PageMap, StepRecord
from pellucid.engine.generation import Generation, Sink
from pellucid.engine.in_flight import InFlight
from pellucid.engine.ledger import Ledger
from pellucid.engine.likelihoods import Likelihoods
from pellucid.engine.operations import Operations
from pellucid.engine.passes import Passes
from pellucid.engine.probe import Probe, Scores
from pellucid.engine.probing import Probes
from pellucid.engine.request import Request
from pellucid.engine.speculating import Speculation
from pellucid.engine.stats import EngineStats
from pellucid.engine.stepping import Stepper
from pellucid.models.registry import Model
from pellucid.sampling import Sampler
from pellucid.scheduling import Limits, Scheduler
from pellucid.text import Tokenizer

Float32 = NDArray[np.float32]


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
        self.ledger = Ledger(model)
        self._operations = Operations(self._start_over, self._end_unwanted)
        self._passes = Passes(model, limits)
        speculation = None if speculate is None else speculate(self._passes.cache)
        changing = self._operations.changing
        self._in_flight = InFlight(limits, self.ledger, changing, speculation)
        self._probes = Probes(self._in_flight)
        self._stepper = Stepper(self._in_flight, self._probes, self._passes, sampler, self.ledger)
        self._unwanted: list[Generation] = []
        self._closed: PellucidError | None = None

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
        with self._operations.alone():
            self._check_open()
            try:
                self._in_flight.enlist(generation)
            except BaseException:
                self._unwanted.append(generation)
                raise

    def abort(self, *generations: Generation) -> None:
        """End requests wherever they are; their pages go back. Nothing happens to those that have
        ended. If this is interrupted, the next operation goes on with it."""
        with self._operations.lock:
            self._unwanted.extend(generations)
            # Else a stream was collected as garbage in the middle of something.
            if not self._operations.under_way:
                with self._operations.alone():
                    pass

    def run_until(self, done: Callable[[], bool]) -> None:
        """Run steps until `done`, for which something must have been submitted."""
        while not done():
            with self._operations.alone():
                if not done() and not self._stepper.step():
                    raise RuntimeError("nothing is planned, and somebody waits")

    def step(self) -> bool:
        """Compute what the scheduler plans next, for all requests; False if that is nothing."""
        with self._operations.alone():
            return self._stepper.step()

    @property
    def scheduler(self) -> Scheduler:
        """What decides what a step computes; another one after it was interrupted."""
        return self._in_flight.scheduler

    @property
    def sampler(self) -> Sampler:
        """What chooses tokens."""
        return self._stepper.sampler

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
        guessing = self._in_flight.speculation
        return None if guessing is None else guessing.told

    def waiting(self) -> list[tuple[str, str]]:
        """The requests that wait, and why: (request id, reason), an entry for each answer. Of
        probes nothing is said."""
        with self._operations.alone():
            return self._in_flight.waiting()

    def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        """Who owns which page after the steps before the number that comes with it."""
        with self._operations.alone():
            return self.ledger.steps, self.scheduler.page_map(with_tokens=with_tokens)

    def stats(self) -> EngineStats:
        """What there is now, and what was counted; for any thread."""
        scheduler, ledger, guessing = self.scheduler, self.ledger, self._in_flight.speculation
        pages = scheduler.page_counts()
        guessed = {} if guessing is None else guessing.stats()
        lifetimes, idle, reuse_gaps = ledger.residency.told()
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
            requests_ended=self._in_flight.requests_ended,
            preemptions=ledger.preemptions,
            step_sizes=tuple(ledger.step_sizes),
            page_lifetimes=lifetimes,
            page_idle=idle,
            page_reuse_gaps=reuse_gaps,
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
        return Likelihoods(token_ids, count, self.sampler.not_tokens, salt, first)

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
        with self._operations.alone():
            self._check_open()
            self._probes.start(probe)

    def stop_probe(self, probe: Probe) -> None:
        """End it wherever it is."""
        with self._operations.alone():
            self._probes.stop(probe)

    def fail_all(self, error: PellucidError) -> None:
        """End every request and every probe with `error`."""
        with self._operations.alone():
            self._in_flight.fail_all(error)
            self._probes.fail_all(error)

    def close(self, error: PellucidError) -> None:
        """End everything with `error`, and refuse with it whatever comes later."""
        with self._operations.alone():
            self._closed = error
            self.fail_all(error)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def _end_unwanted(self) -> None:
        """Those that were aborted while something else was done."""
        while self._unwanted:
            self._in_flight.end(self._unwanted.pop())

    def _start_over(self) -> None:
        """No request can be trusted to go on: pages may be miscounted, and positions have moved
        without their tokens."""
        self._in_flight.start_over()
        self.fail_all(PellucidError("interrupted in the middle of a step: ask again"))
