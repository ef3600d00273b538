"""A finished answer as JSON, and what is said of it beside its text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pellucid.cli.output import note, printable
from pellucid.cli.sampling import in_effect

if TYPE_CHECKING:
    from pellucid import LLM, CompletionOutput, RequestOutput, SamplingParams, TokenLogprob


def as_json(
    model: str, llm: LLM, prompt: str, output: RequestOutput, params: SamplingParams
) -> dict[str, Any]:
    """Everything about an answer: names as in `RequestOutput` and `SamplingParams`."""
    return {
        "model": model,
        "model_path": str(llm.model_path),
        "prompt": prompt,
        "prompt_token_ids": output.prompt_token_ids,
        "outputs": [_answer_json(answer) for answer in output.outputs],
        "metrics": asdict(output.metrics) if output.metrics else None,
        "sampling_params": in_effect(params),
    }


def _answer_json(answer: CompletionOutput) -> dict[str, Any]:
    logprobs = None
    if answer.logprobs is not None:
        positions = zip(answer.token_ids, answer.logprobs, strict=True)
        logprobs = [_position_json(token, at) for token, at in positions]
    return {
        "index": answer.index,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "logprobs": logprobs,
        "cumulative_logprob": answer.cumulative_logprob,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
    }


def _position_json(token: int, at: dict[int, TokenLogprob]) -> dict[str, Any]:
    by_rank = sorted(at.values(), key=lambda choice: choice.rank)
    return {**asdict(at[token]), "top": [asdict(choice) for choice in by_rank]}


def print_logprobs(output: RequestOutput) -> None:
    """Each token with its log-probability and the likeliest, to standard error."""
    for answer in output.outputs:
        for token, at in zip(answer.token_ids, answer.logprobs or [], strict=True):
            likeliest = sorted(at.values(), key=lambda choice: choice.rank)
            others = "  ".join(
                f"{printable(choice.text)!r} {choice.logprob:.2f}" for choice in likeliest
            )
            note(f"{at[token].logprob:8.3f}  {printable(at[token].text)!r:20}  {others}")


def say_why_it_ended(output: RequestOutput, params: SamplingParams) -> None:
    """Nothing where the model ended by itself; the limit or the stop text otherwise."""
    for answer in output.outputs:
        which = f"answer {answer.index}: " if len(output.outputs) > 1 else ""
        if answer.finish_reason == "length":
            reached = len(answer.token_ids) == params.max_tokens
            limit = "--max-tokens" if reached else "the end of the context, --max-model-len"
            note(f"{which}stopped after {len(answer.token_ids)} tokens: {limit}")
        elif answer.stop_reason is not None:
            note(f"{which}stopped at {answer.stop_reason!r}")


def say_statistics(output: RequestOutput) -> None:
    """Tokens and times of a request."""
    metrics = output.metrics
    if metrics is None:
        return
    answering = metrics.finished_time - metrics.time_to_first_token
    pace = ""
    if answering > 0 and metrics.generation_tokens > 1:
        pace = f", then {(metrics.generation_tokens - 1) / answering:.1f} tokens/s"
    note(
        f"prompt: {metrics.prompt_tokens} tokens; answer: {metrics.generation_tokens} tokens; "
        f"first token after {metrics.time_to_first_token:.2f} s{pace}"
    )
