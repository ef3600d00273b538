"""Generation: a request on its way through the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment, RequestMetrics
from pellucid.engine.answer import Answer
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

    `on_end` is called when nothing more will come of it.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, arrival: float, sink: Sink) -> None:
        self.request = request
        self.answers = [Answer(request, index, tokenizer) for index in range(request.params.n)]
        self.sequences: list[Sequence] = []
        self.on_end: Callable[[], object] | None = None
        self._sink = sink
        self._arrival = arrival
        self._started: float | None = None
        self._first_token: float | None = None

    @property
    def finished(self) -> bool:
        """True if nothing more will come."""
        return all(answer.finished for answer in self.answers)

    def mark_started(self, now: float) -> None:
        """Some of its positions are about to be computed."""
        if self._started is None:
            self._started = now

    def add(self, increment: Increment, now: float) -> None:
        """An answer grew, or ended."""
        if self._first_token is None and increment.token_ids:
            self._first_token = now
        if increment.finish_reason is not None and self.finished:
            increment.metrics = self._metrics(now)
            self._ended()
        self._sink.add(increment)

    def fail(self, error: PellucidError) -> None:
        """Its own trouble: it is to end."""
        self._sink.fail(error)
        self._ended()

    def _ended(self) -> None:
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
        )
