"""The records as JSON: what docs/records.md describes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.encoder import encode_basestring as json_text
from typing import Any, Final, Protocol

from pellucid.core.record import RequestRecord, RoundRecord, SpanRecord, StepRecord
from pellucid.scheduling import Limits
from pellucid.server.live.checks import check_step
from pellucid.server.live.journeys import Journey

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Names(Protocol):
    """Who sequences belong to."""

    def of(self, sequence: int) -> RequestRecord | None: ...

    def head(self, sequence: int) -> str:
        """The beginning of what is said of a sequence: its request and itself."""


def head(sequence: int, request: RequestRecord | None) -> str:
    """The beginning of what is said of a sequence of a request."""
    name = "null" if request is None else json_text(request.id)
    return f'{{"request":{name},"sequence":{sequence}'


def step_json(record: StepRecord, names: Names, limits: Limits, *, ids: bool) -> bytes:
    """A step; `limits` are the engine's. `ids`: of tokens, which are somebody's text."""
    # Written out: of a step of 8 sequences in a third of the time that objects and an encoder take.
    cost, heads = record.cost, names.head
    batch = ",".join([_span(span, names) for span in record.spans])
    tokens = ",".join(
        [
            f'{heads(sequence)},"id":{token if ids else "null"}}}'
            for sequence, tokens in record.tokens.items()
            for token in tokens
        ]
    )
    drafts = ",".join([_draft(one, heads(one.sequence), ids=ids) for one in record.rounds])
    return (
        f'{{"id":{record.number},"start":{record.start!r},"ms":{_milliseconds(record)},'
        f'"batch":[{batch}],"pages":{_pages(record)},"tokens":[{tokens}],"drafts":[{drafts}],'
        f'"cost":{{"operations":{cost.operations},"weights_read":{cost.weights_read},'
        f'"kv_read":{cost.kv_read},"kv_written":{cost.kv_written},'
        f'"activations_read":{cost.activations_read},'
        f'"activations_written":{cost.activations_written}}},'
        f'"budget":{{"tokens":{limits.max_num_batched_tokens},"sequences":{limits.max_num_seqs}}},'
        f'"queue":{{"running":{record.n_running},"waiting":{record.n_waiting},'
        f'"why":{_few(record.waiting)}}},"checks":{_few(check_step(record, limits))}}}'
    ).encode()


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


def _milliseconds(record: StepRecord) -> str:
    schedule, draft, prepare, forward, sample, post = record.seconds
    turn = record.turn
    wait = emit = wall = unaccounted = "null"
    if turn is not None:
        wait, emit, wall = _fixed(turn.wait), _fixed(turn.emit), _fixed(turn.wall)
        unaccounted = _fixed(turn.step - record.total_seconds)
    return (
        f'{{"wait":{wait},"schedule":{_fixed(schedule)},"draft":{_fixed(draft)},'
        f'"prepare":{_fixed(prepare)},"forward":{_fixed(forward)},"sample":{_fixed(sample)},'
        f'"post":{_fixed(post)},"emit":{emit},"unaccounted":{unaccounted},"wall":{wall}}}'
    )


def _fixed(seconds: float) -> str:
    return f"{1000 * seconds:.4f}"


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 4)


def _span(span: SpanRecord, names: Names) -> str:
    sequence, start, n_tokens, n_logits = span
    request = names.of(sequence)
    kind = _kind(span, None if request is None else request.prompt_tokens)
    return (
        f'{names.head(sequence)},"kind":"{kind}","tokens":{n_tokens},'
        f'"context":{start + n_tokens},"logits":{n_logits}}}'
    )


def _kind(span: SpanRecord, prompt_tokens: int | None) -> str:
    """Prefill, decode, or the check of a draft's guesses; what a preempted sequence computes again
    is prefill."""
    if span.n_tokens == 1:
        first = span.start if prompt_tokens is None else prompt_tokens
        return "decode" if span.start >= first else "prefill"
    guessed = prompt_tokens is not None and span.start >= prompt_tokens and span.n_logits > 1
    return "verify" if guessed else "prefill"


def _draft(one: RoundRecord, head: str, *, ids: bool) -> str:
    guessed = _few(one.draft if ids else [None] * len(one.draft))
    checks = ",".join([_check(*check) for check in one.checks])
    return f'{head},"guessed":{guessed},"accepted":{one.n_accepted},"checks":[{checks}]}}'


def _check(p: float, q: float | None, drawn: float | None) -> str:
    return f"[{_share(p)},{_share(q)},{_share(drawn)}]"


def _share(value: float | None) -> str:
    return "null" if value is None else f"{value:.4g}"


def _pages(record: StepRecord) -> str:
    changes, counts = record.changes, record.pages
    preempted = _encode(changes.preempted) if changes.preempted else "{}"
    return (
        f'{{"free":{counts.free},"cached":{counts.cached},"owned":{counts.owned},'
        f'"taken":{_few(changes.taken)},"shared":{_few(changes.shared)},'
        f'"released":{_few(changes.released)},"evicted":{_few(changes.evicted)},'
        f'"cached_now":{_few(changes.cached)},"copied":{_few(changes.copied)},'
        f'"preempted":{preempted},"ended":{_few(changes.ended)},"owners":{_few(changes.owned)}}}'
    )


def _few(values: Sequence[Any]) -> str:
    """What is mostly empty."""
    return _encode(values) if values else "[]"
