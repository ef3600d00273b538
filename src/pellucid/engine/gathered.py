"""Gathered: the increments of a request, joined to what it gave back so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import (
    CompletionOutput,
    FinishReason,
    Increment,
    RequestMetrics,
    RequestOutput,
    TokenLogprob,
)
from pellucid.engine.request import Request


@dataclass(slots=True)
class _Answer:
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, TokenLogprob]] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


class Gathered:
    """What came of `request`, as far as its increments were added."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._answers = [_Answer() for _ in range(request.params.n)]
        self._open = request.params.n
        self.metrics: RequestMetrics | None = None
        self.error: PellucidError | None = None

    @property
    def finished(self) -> bool:
        """True if every answer has ended: no more increments will come."""
        return not self._open

    def add(self, increment: Increment) -> None:
        answer = self._answers[increment.index]
        if increment.text:
            answer.texts.append(increment.text)
        answer.token_ids += increment.token_ids
        if increment.logprobs is not None:
            answer.logprobs += increment.logprobs
        if increment.finish_reason is not None:
            answer.finish_reason = increment.finish_reason
            answer.stop_reason = increment.stop_reason
            self._open -= 1
        if increment.metrics is not None:
            self.metrics = increment.metrics

    def fail(self, error: PellucidError) -> None:
        """Why it ends, if by its own trouble."""
        self.error = error

    def output(self) -> RequestOutput:
        """Everything so far; the metrics when it is finished."""
        request = self._request
        return RequestOutput(
            request.id,
            request.prompt,
            list(request.prompt_token_ids),
            [self._completion(index, answer) for index, answer in enumerate(self._answers)],
            self.finished,
            self.metrics,
        )

    def _completion(self, index: int, answer: _Answer) -> CompletionOutput:
        logprobs = cumulative = None
        if self._request.params.logprobs is not None:
            logprobs = list(answer.logprobs)
            chosen = zip(answer.token_ids, logprobs, strict=True)
            cumulative = sum((entries[token].logprob for token, entries in chosen), 0.0)
        if len(answer.texts) > 1:  # joined once, however often the output is asked for
            answer.texts = ["".join(answer.texts)]
        return CompletionOutput(
            index,
            "".join(answer.texts),
            list(answer.token_ids),
            logprobs,
            cumulative,
            answer.finish_reason,
            answer.stop_reason,
        )


class Gathering:
    """What a stream of increments, of any kind, says of its request at any time."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._gathered = Gathered(request)

    @property
    def request_id(self) -> str:
        return self._request.id

    @property
    def prompt_token_ids(self) -> list[int]:
        return list(self._request.prompt_token_ids)

    @property
    def finished(self) -> bool:
        """True if every answer has ended and was seen to its end."""
        return self._gathered.finished

    def output(self) -> RequestOutput:
        """Everything seen so far; the metrics when it is finished."""
        return self._gathered.output()
