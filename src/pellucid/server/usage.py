"""What an answer cost: `usage` in tokens, `timings` in milliseconds; both in every response.

Names of `timings` are llama-server's, with vLLM's for what it does not say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pellucid.core.outputs import RequestMetrics


def usage(metrics: Sequence[RequestMetrics]) -> dict[str, Any]:
    """OpenAI's form; several prompts of one request are added up."""
    prompt, answer, cached = _sums(metrics)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def embeddings_usage(metrics: Sequence[RequestMetrics]) -> dict[str, Any]:
    """OpenAI's form where nothing is answered in tokens."""
    prompt, _, cached = _sums(metrics)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def responses_usage(metrics: Sequence[RequestMetrics]) -> dict[str, Any]:
    """The form of `/v1/responses`."""
    prompt, answer, cached = _sums(metrics)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + answer,
    }


def anthropic_usage(metrics: Sequence[RequestMetrics]) -> dict[str, Any]:
    """Anthropic's form: `input_tokens` are those that were not in the cache."""
    prompt, answer, cached = _sums(metrics)
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer,
    }


def timings(metrics: Sequence[RequestMetrics]) -> dict[str, Any]:
    """Times from the request's arrival; of several prompts, the last one's.

    cache_n, prompt_n, predicted_n: tokens from the prefix cache, computed of the prompt, chosen.
    prompt_ms: from the first position computed to the first token; predicted_ms: from there to the
    end. mean_itl_ms: predicted_ms over the tokens of an answer after its first. draft_n,
    draft_n_accepted: tokens guessed ahead and those of them that were right, where some were.
    """
    prompt, answer, cached = _sums(metrics)
    queued = max(m.queue_time for m in metrics)
    first = max(m.time_to_first_token for m in metrics)
    end = max(m.finished_time for m in metrics)
    prefill, decode = first - queued, end - first
    computed = prompt - cached
    guessed = sum(m.guessed_tokens for m in metrics)
    drafts = {"draft_n": guessed, "draft_n_accepted": sum(m.accepted_tokens for m in metrics)}
    return {
        "cache_n": cached,
        "prompt_n": computed,
        "prompt_ms": _ms(prefill),
        "prompt_per_token_ms": _ms(_over(prefill, computed)),
        "prompt_per_second": _rounded(_over(computed, prefill)),
        "predicted_n": answer,
        "predicted_ms": _ms(decode),
        "predicted_per_token_ms": _ms(_over(decode, answer)),
        "predicted_per_second": _rounded(_over(answer, decode)),
        "queue_time_ms": _ms(queued),
        "time_to_first_token_ms": _ms(first),
        "mean_itl_ms": _ms(_over(decode, answer - len(metrics))),
        "total_ms": _ms(end),
        **(drafts if guessed else {}),
    }


def _sums(metrics: Sequence[RequestMetrics]) -> tuple[int, int, int]:
    return (
        sum(m.prompt_tokens for m in metrics),
        sum(m.generation_tokens for m in metrics),
        sum(m.cached_tokens for m in metrics),
    )


def _over(amount: float, by: float) -> float:
    """0 where nothing was done or no time passed."""
    return amount / by if by > 0 else 0.0


def _ms(seconds: float) -> float:
    return _rounded(1000.0 * max(seconds, 0.0))


def _rounded(value: float) -> float:
    return round(value, 3)
