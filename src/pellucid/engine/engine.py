"""Engine: requests in, increments out, one step at a time.

A request's life:

1. `submit` checks that it can ever run and queues one sequence for each of its answers.
2. Each `step` asks the scheduler for a plan, runs the model on it, chooses a token for every
   sequence whose last known position was computed, and tells the scheduler.
3. Each token becomes an increment of its answer, which waits in its `Generation` for whoever asked.
4. At an answer's end, or at `abort`, its pages go back at once.

A step that is interrupted (Ctrl-C) was never applied: the next plan computes the same again.
Several threads may use one engine; a lock makes each operation whole.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import TokenChoice
from pellucid.core.plan import Plan, Span
from pellucid.engine.answer import Answer
from pellucid.engine.generation import Generation
from pellucid.engine.request import Request
from pellucid.models.registry import Model
from pellucid.sampling import Sampler
from pellucid.scheduling import Limits, Scheduler, Sequence
from pellucid.text import Tokenizer

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Job:
    """What becomes of a sequence's logits: an answer's next token."""

    generation: Generation
    answer: Answer
    sequence: Sequence


@dataclass(slots=True)
class _Scoring:
    """What becomes of a sequence's logits: they are kept, float32 [length, vocabulary]."""

    sequence: Sequence
    logits: Float32
    filled: int = 0


class Engine:
    """A model, its pages, and the sequences that run on them."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, limits: Limits, sampler: Sampler
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.scheduler = Scheduler(limits)
        self._cache = _new_cache(model, limits)
        self._sampler = sampler
        self._jobs: dict[int, _Job] = {}
        self._scorings: dict[int, _Scoring] = {}
        self._ids = itertools.count()
        self._stepping = False
        self._unwanted: list[Generation] = []
        self._lock = threading.RLock()

    def submit(self, request: Request) -> Generation:
        """Queue a request.

        Raises `PromptTooLong` or `BadInput` if it could never run; nothing is queued then.
        """
        with self._lock:
            generation = Generation(request, self.tokenizer, time.monotonic())
            try:
                for answer in generation.answers:
                    sequence = Sequence(
                        next(self._ids), request.prompt_token_ids, request.max_tokens
                    )
                    self.scheduler.add(sequence)
                    generation.sequences.append(sequence)
                    self._jobs[sequence.id] = _Job(generation, answer, sequence)
            except BaseException:
                self._end(generation)
                raise
            return generation

    def abort(self, generation: Generation) -> None:
        """End a request wherever it is; its pages go back. Nothing happens if it has ended."""
        with self._lock:
            if self._stepping:  # a stream was collected as garbage in the middle of a step
                self._unwanted.append(generation)
            else:
                self._end(generation)

    def advance(self, generation: Generation) -> bool:
        """Run steps until `generation` has increments to collect; False if none will come.

        Raises what went wrong with it: a `PellucidError`.
        """
        while not generation.increments and not generation.finished:
            with self._lock:
                if not self.step() and not generation.finished:
                    raise RuntimeError(f"nothing is planned for request {generation.request.id}")
        if generation.error is not None:
            raise generation.error
        return bool(generation.increments)

    def step(self) -> bool:
        """Compute what the scheduler plans next, for all requests; False if that is nothing."""
        with self._lock:
            plan = self.scheduler.plan()
            if not plan.spans:
                return False
            self._stepping = True
            try:
                self._run(plan)
            finally:
                self._stepping = False
                while self._unwanted:
                    self._end(self._unwanted.pop())
            return True

    def logits(self, token_ids: Tokens[int]) -> Float32:
        """Scores of every position, float32 [len(token_ids), vocabulary].

        Raises `PromptTooLong` for more tokens than the context holds.
        """
        sequence = Sequence(next(self._ids), token_ids, 0, all_logits=True)
        shape = len(token_ids), self.model.spec.vocab_size
        scoring = _Scoring(sequence, np.empty(shape, np.float32))
        with self._lock:
            self.scheduler.add(sequence)
            self._scorings[sequence.id] = scoring
        try:
            while scoring.filled < len(token_ids):
                self.step()
        finally:
            with self._lock:
                del self._scorings[sequence.id]
                self.scheduler.finish(sequence)
        return scoring.logits

    def _run(self, plan: Plan) -> None:
        self._mark_started(plan)
        choices = self._choose(plan, self._forward(plan))
        tokens = {sequence: (choice.token_id,) for sequence, choice in choices.items()}
        try:
            self.scheduler.apply(plan, tokens)
            self._deliver(choices)
        except BaseException:
            self._abandon()
            raise

    def _end(self, generation: Generation) -> None:
        for sequence in generation.sequences:
            job = self._jobs.pop(sequence.id, None)
            self.scheduler.finish(sequence)
            if job is not None:
                generation.add(job.answer.abort(), time.monotonic())

    def _mark_started(self, plan: Plan) -> None:
        now = time.monotonic()
        for span in plan.spans:
            if span.sequence in self._jobs:
                self._jobs[span.sequence].generation.mark_started(now)

    def _forward(self, plan: Plan) -> Float32:
        with np.errstate(all="ignore"):  # scores that are not numbers are refused by the sampler
            return self.model.ops.to_numpy(self.model.forward(plan, self._cache))

    def _choose(self, plan: Plan, logits: Float32) -> dict[int, TokenChoice]:
        """A choice for each sequence that has its logits, sequence id to choice."""
        waiting: list[int] = []
        rows: list[int] = []  # of the waiting sequences' last logits
        row = 0
        for span in plan.spans:
            row += span.n_logits
            if span.sequence in self._scorings:
                self._keep(span, logits[row - span.n_logits : row])
            elif span.n_logits and span.sequence in self._jobs:
                waiting.append(span.sequence)
                rows.append(row - 1)
        draws = [self._jobs[sequence].answer.draw() for sequence in waiting]
        choices: dict[int, TokenChoice] = {}
        for sequence, choice in zip(
            waiting, self._sampler.choose_rows(logits, rows, draws), strict=True
        ):
            if sequence not in self._jobs:  # a sibling's trouble ended its request
                continue
            if isinstance(choice, PellucidError):  # its own request's trouble, and no other's
                generation = self._jobs[sequence].generation
                generation.error = choice
                self._end(generation)
            else:
                choices[sequence] = choice
        return choices

    def _keep(self, span: Span, rows: Float32) -> None:
        scoring = self._scorings[span.sequence]
        scoring.logits[span.end - len(rows) : span.end] = rows
        scoring.filled = span.end
        if scoring.filled == len(scoring.logits):
            self.scheduler.finish(scoring.sequence)

    def _deliver(self, choices: dict[int, TokenChoice]) -> None:
        now = time.monotonic()
        for sequence_id, choice in choices.items():
            job = self._jobs.get(sequence_id)
            if job is None:  # another answer of its request failed in this step
                continue
            increment = job.answer.take(choice)
            if job.answer.finished:
                del self._jobs[sequence_id]
                self.scheduler.finish(job.sequence)
            job.generation.add(increment, now)

    def _abandon(self) -> None:
        """A step was cut off while it was being applied: no request can be trusted to go on."""
        for job in list(self._jobs.values()):
            job.generation.error = PellucidError("interrupted in the middle of a step: ask again")
            self._end(job.generation)


def _new_cache(model: Model, limits: Limits) -> object:
    try:
        return model.ops.new_cache(model.spec, limits.n_pages, limits.page_size)
    except ValueError as error:  # pages of a size that this backend cannot lay out
        raise BadInput(f"page_size {limits.page_size}: {error}") from error
    except MemoryError as error:
        raise PellucidError(
            f"the system gives no memory for {limits.n_pages} pages of KV cache: lower "
            "kv_cache_memory_bytes, max_model_len or max_num_seqs"
        ) from error
