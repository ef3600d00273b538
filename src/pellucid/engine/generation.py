"""Generation: a request on its way through the engine."""

from __future__ import annotations

from collections import deque

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment, RequestMetrics, RequestOutput
from pellucid.engine.answer import Answer
from pellucid.engine.request import Request
from pellucid.scheduling import Sequence
from pellucid.text import Tokenizer


class Generation:
    """A request with its answers, the increments nobody has collected yet, and its times.

    Times are seconds of the engine's clock; None until it happened.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, arrival: float) -> None:
        self.request = request
        self.answers = [Answer(request, index, tokenizer) for index in range(request.params.n)]
        self.sequences: list[Sequence] = []
        self.increments: deque[Increment] = deque()
        self.error: PellucidError | None = None
        self._arrival = arrival
        self._started: float | None = None
        self._first_token: float | None = None
        self._finished: float | None = None

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
        self.increments.append(increment)
        if self._first_token is None and increment.token_ids:
            self._first_token = now
        if self.finished:
            self._finished = now

    def output(self) -> RequestOutput:
        """Everything so far; the metrics when it is finished."""
        return RequestOutput(
            self.request.id,
            self.request.prompt,
            list(self.request.prompt_token_ids),
            [answer.output() for answer in self.answers],
            self.finished,
            self._metrics(),
        )

    def _metrics(self) -> RequestMetrics | None:
        if self._finished is None:
            return None

        def since_arrival(time: float | None) -> float:
            return (self._finished if time is None else time) - self._arrival  # type: ignore[operator]

        return RequestMetrics(
            since_arrival(self._started),
            since_arrival(self._first_token),
            since_arrival(self._finished),
            len(self.request.prompt_token_ids),
            sum(answer.n_tokens for answer in self.answers),
        )
