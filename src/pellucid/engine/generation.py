"""Generation: a request on its way through the engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment, RequestMetrics
from pellucid.core.record import RequestRecord, RequestState, RoundRecord
from pellucid.engine.answer import Answer
from pellucid.engine.ledger import Ledger
from pellucid.engine.request import Request
from pellucid.scheduling import Sequence
from pellucid.text import Tokenizer


class Sink(Protocol):
    """Where a request's increments go, in the thread that runs the engine."""

    def add(self, increment: Increment) -> None: ...

    def fail(self, error: PellucidError) -> None:
        """The request cannot go on; its answers are about to end."""


class Generation:
    """A request with its answers and its times, in seconds of the engine's clock.

    `on_end` is called when nothing more will come of it. What becomes of it is told to the register
    of `ledger`.
    """

    def __init__(
        self, request: Request, tokenizer: Tokenizer, arrival: float, sink: Sink, ledger: Ledger
    ) -> None:
        self.request = request
        self.answers = [Answer(request, index, tokenizer) for index in range(request.params.n)]
        self.sequences: list[Sequence] = []
        self.on_end: Callable[[], object] | None = None
        self._sink = sink
        self._arrival = arrival
        self._ledger = ledger
        self._started: float | None = None
        self._first_token: float | None = None
        self._last_token: float | None = None
        self._finished: float | None = None
        self._failed = False
        self._first_step: int | None = None
        self._last_step = 0
        self._guessed = 0
        self._accepted = 0
        self._open = len(self.answers)

    @property
    def finished(self) -> bool:
        """True if nothing more will come: every answer's end was told."""
        return self._open <= 0  # one that was cut short in its end is ended again

    def mark_started(self, now: float, step: int) -> None:
        """Some of its positions are about to be computed."""
        if self._started is None:
            self._started, self._first_step = now, step
            self._ledger.register.changed(self)

    def add(self, increment: Increment, now: float) -> None:
        """An answer grew, or ended."""
        if increment.token_ids:
            self._last_token, self._last_step = now, self._ledger.steps
            if self._first_token is None:
                self._first_token = now
                self._ledger.register.changed(self)
        if increment.finish_reason is not None:
            self._open -= 1
            if self.finished:
                increment.metrics = self._metrics(now)
                self._ended(now)
        self._sink.add(increment)

    def checked(self, one: RoundRecord) -> None:
        """A draft for one of its answers was."""
        self._guessed += len(one.draft)
        self._accepted += one.n_accepted

    def fail(self, error: PellucidError) -> None:
        """Its own trouble: it is to end."""
        self._failed = True
        self._sink.fail(error)
        self._ended(time.monotonic())

    def record(self) -> RequestRecord:
        """How it is at the moment; for any thread."""
        first = self._first_step
        reasons = [a.finish_reason for a in self.answers if a.finish_reason is not None]
        return RequestRecord(
            id=self.request.id,
            sequences=tuple([sequence.id for sequence in self.sequences]),
            state=self._state(),
            queued=self._arrival,
            started=self._started,
            first_token=self._first_token,
            last_token=self._last_token,
            finished=self._finished,
            prompt_tokens=len(self.request.prompt_token_ids),
            cached_tokens=self.sequences[0].cached_tokens if self.sequences else 0,
            output_tokens=sum([answer.n_tokens for answer in self.answers]),
            preemptions=sum([sequence.n_preemptions for sequence in self.sequences]),
            finish_reason=reasons[-1] if reasons else None,
            steps=None if first is None else (first, max(first, self._last_step)),
            guessed_tokens=self._guessed,
            accepted_tokens=self._accepted,
            tokenize_s=self.request.tokenize_s,
            detokenize_s=sum([answer.detokenize_s for answer in self.answers]),
            seed=self.request.seed,
        )

    def _state(self) -> RequestState:
        if self._failed:
            return "failed"
        if self._finished is None:
            return "queued" if self._started is None else "running"
        aborted = all(answer.finish_reason == "abort" for answer in self.answers)
        return "cancelled" if aborted else "finished"

    def _ended(self, now: float) -> None:
        if self._finished is None:
            self._finished = now
            self._ledger.register.ended(self)
        if self.on_end is not None:
            self.on_end()

    def _metrics(self, now: float) -> RequestMetrics:
        def since_arrival(time: float | None) -> float:
            return (now if time is None else time) - self._arrival

        return RequestMetrics(
            since_arrival(self._started),
            since_arrival(self._first_token),
            since_arrival(now),
            len(self.request.prompt_token_ids),
            sum(answer.n_tokens for answer in self.answers),
            self.sequences[0].cached_tokens if self.sequences else 0,
            sum(sequence.n_preemptions for sequence in self.sequences),
            self._guessed,
            self._accepted,
        )
