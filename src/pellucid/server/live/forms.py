"""The records as JSON: what docs/records.md describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from pellucid.core.record import RequestRecord, SpanRecord, StepRecord
from pellucid.scheduling import Limits
from pellucid.server.live.checks import check_step
from pellucid.server.live.journeys import Journey


class Names(Protocol):
    """Who a sequence belongs to."""

    def of(self, sequence: int) -> RequestRecord | None: ...


def step_json(record: StepRecord, names: Names, limits: Limits, *, ids: bool) -> dict[str, Any]:
    """A step; `limits` are the engine's. `ids`: of tokens, which are somebody's text."""
    return {
        "id": record.number,
        "start": record.start,
        "ms": _milliseconds(record),
        "batch": [_span(span, names) for span in record.spans],
        "pages": _pages(record),
        "tokens": [
            {"request": _name(sequence, names), "sequence": sequence, "id": token if ids else None}
            for sequence, tokens in record.tokens.items()
            for token in tokens
        ],
        "drafts": [
            {
                "request": _name(one.sequence, names),
                "sequence": one.sequence,
                "guessed": one.draft if ids else [None] * len(one.draft),
                "accepted": one.n_accepted,
            }
            for one in record.rounds
        ],
        "cost": asdict(record.cost),
        "budget": {"tokens": limits.max_num_batched_tokens, "sequences": limits.max_num_seqs},
        "queue": {
            "running": record.n_running,
            "waiting": record.n_waiting,
            "why": record.waiting,
        },
        "checks": check_step(record, limits),
    }


def request_json(
    record: RequestRecord, journey: Journey | None, checks: Sequence[str]
) -> dict[str, Any]:
    """A request, as the engine and the server know it."""
    return {
        "id": record.id,
        "state": record.state,
        "sequences": record.sequences,
        "received": None if journey is None else journey.received,
        "queued": record.queued,
        "started": record.started,
        "first_token": record.first_token,
        "last_token": record.last_token,
        "finished": record.finished,
        "sent": None if journey is None else journey.sent,
        "tokenize_ms": _ms(record.tokenize_s),
        "detokenize_ms": _ms(record.detokenize_s),
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "preemptions": record.preemptions,
        "finish_reason": record.finish_reason,
        "steps": record.steps,
        "speculation": _guesses(record),
        "checks": checks,
    }


def _guesses(record: RequestRecord) -> dict[str, int] | None:
    if not record.guessed_tokens:
        return None
    return {"guessed": record.guessed_tokens, "accepted": record.accepted_tokens}


def _milliseconds(record: StepRecord) -> dict[str, float | None]:
    schedule, draft, prepare, forward, sample, post = (_ms(part) for part in record.seconds)
    turn = record.turn
    wait = emit = wall = unaccounted = None
    if turn is not None:
        wait, emit, wall = _ms(turn.wait), _ms(turn.emit), _ms(turn.wall)
        unaccounted = _ms(turn.step - record.total_seconds)
    return {
        "wait": wait,
        "schedule": schedule,
        "draft": draft,
        "prepare": prepare,
        "forward": forward,
        "sample": sample,
        "post": post,
        "emit": emit,
        "unaccounted": unaccounted,
        "wall": wall,
    }


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 4)


def _span(span: SpanRecord, names: Names) -> dict[str, Any]:
    request = names.of(span.sequence)
    prompt = None if request is None else request.prompt_tokens
    return {
        "request": None if request is None else request.id,
        "sequence": span.sequence,
        "kind": _kind(span, prompt),
        "tokens": span.n_tokens,
        "context": span.start + span.n_tokens,
        "logits": span.n_logits,
    }


def _kind(span: SpanRecord, prompt_tokens: int | None) -> str:
    """Prefill, decode, or the check of a draft's guesses; what a preempted sequence computes again
    is prefill."""
    if span.n_tokens == 1:
        first = span.start if prompt_tokens is None else prompt_tokens
        return "decode" if span.start >= first else "prefill"
    guessed = prompt_tokens is not None and span.start >= prompt_tokens and span.n_logits > 1
    return "verify" if guessed else "prefill"


def _pages(record: StepRecord) -> dict[str, Any]:
    changes, counts = record.changes, record.pages
    return {
        "free": counts.free,
        "cached": counts.cached,
        "owned": counts.owned,
        "taken": changes.taken,
        "shared": changes.shared,
        "released": changes.released,
        "evicted": changes.evicted,
        "cached_now": changes.cached,
        "copied": changes.copied,
        "preempted": changes.preempted,
        "ended": changes.ended,
        "owners": changes.owned,
    }


def _name(sequence: int, names: Names) -> str | None:
    request = names.of(sequence)
    return None if request is None else request.id
