"""What a request gives back; names as in vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]


@dataclass(slots=True)
class TokenLogprob:
    """A token's log-probability (natural logarithm) under the model, and its rank from 1."""

    token_id: int
    logprob: float
    rank: int
    text: str = ""


@dataclass(slots=True)
class TokenChoice:
    """The token a sampler chose for one row of logits, with what was asked of its neighbours."""

    token_id: int
    logprob: TokenLogprob | None = None
    top: Sequence[TokenLogprob] = ()


@dataclass(slots=True)
class CompletionOutput:
    """One answer. `stop_reason` is the stop string or token id that ended it, None at an
    end-of-sequence token or a limit."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, TokenLogprob]] | None
    cumulative_logprob: float | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None = None


@dataclass(slots=True)
class RequestMetrics:
    """Times in seconds from the request's arrival. `cached_tokens` of the prompt were taken from
    the prefix cache; `preemptions` counts how often an answer had to give up its pages.
    guessed_tokens: those of its drafts; accepted_tokens: those of them that were right."""

    queue_time: float
    time_to_first_token: float
    finished_time: float
    prompt_tokens: int
    generation_tokens: int
    cached_tokens: int = 0
    preemptions: int = 0
    guessed_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(slots=True)
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None = None


@dataclass(slots=True)
class EmbeddingOutput:
    """A text as a vector of the model's width. Of its `metrics`, the first token is the vector."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    embedding: list[float]
    metrics: RequestMetrics | None = None


@dataclass(slots=True)
class Increment:
    """What one step added to answer `index`. Text may lag behind its tokens (half a character, or
    what may yet turn into a stop string, is held back); joined over an answer, the increments
    equal its `CompletionOutput`. The answer's last one carries `finish_reason`, the request's last
    one `metrics`."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, TokenLogprob]] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    metrics: RequestMetrics | None = None

    def then(self, later: Increment) -> Increment:
        """This and what came after it, as one."""
        logprobs = self.logprobs
        if later.logprobs is not None:
            logprobs = [*(logprobs or ()), *later.logprobs]
        return Increment(
            self.index,
            self.text + later.text,
            self.token_ids + later.token_ids,
            logprobs,
            later.finish_reason,
            later.stop_reason,
            later.metrics,
        )
