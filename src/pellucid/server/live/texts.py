"""The tokens of one request, for whoever may read them: each with its chance and its time, and how
it was chosen.

A text is its asker's. Whoever asked with the header `X-Pellucid-Viewer` (a secret of their own
making) reads it with the same header and the same key; others only where the server was started
with `--show-prompts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import TokenLogprob
from pellucid.core.params import SamplingParams
from pellucid.engine.client import EngineClient
from pellucid.engine.retold import Moment
from pellucid.sampling.funnel import Funnel, Sieve
from pellucid.server.errors import ApiError, bad_request
from pellucid.server.events import dumps
from pellucid.server.live.hubs import Hubs
from pellucid.server.live.journeys import VIEWER_HEADER, Said
from pellucid.server.live.window import Window
from pellucid.server.reading import read, switch
from pellucid.server.service import Service
from pellucid.server.wire.live import FunnelRequest
from pellucid.text import Tokenizer

_TOP: Final = 5  # alternatives of each token
_FUNNEL_TOP: Final = 20


class Texts:
    """Reads texts again, one at a time: each costs the engine a prompt's work."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def one_request(self, request: Request) -> Response:
        """`GET /live/requests/{id}`: pieces of the prompt and tokens of the answers; with
        `?chances=0` the engine computes nothing for it."""
        service, said, window = await _asked(request, request.path_params["id"])
        number = _number(request, said)
        answer = tuple(said.answers[number])  # it may grow meanwhile
        chances: Sequence[Mapping[int, TokenLogprob] | None] = [None] * len(answer)
        if switch(request, "chances", "1"):
            async with self._one:
                chances = await _chances(service, said, answer)
        name = request.path_params["id"]
        body = {
            "request": window.request(name),
            "prompt": _pieces(service.tokenizer, said.prompt),
            "answer": number,
            "tokens": _tokens(service.tokenizer, said, number, chances, window.steps_of(name)),
        }
        return Response(dumps(body), media_type="application/json")

    async def funnel(self, request: Request) -> Response:
        """`POST /live/funnel`: how a token was chosen, or would be by other parameters."""
        asking = (await read(request, FunnelRequest)).asked
        service, said, window = await _asked(request, asking.request)
        number = asking.answer or 0
        if number >= len(said.answers):
            raise bad_request(f"answer: there are {len(said.answers)}", "answer")
        answer = said.answers[number]
        if asking.index >= len(answer):
            raise bad_request(f"index: the answer has {len(answer)} tokens so far", "index")
        moment = Moment(
            prompt=tuple(said.prompt),
            before=tuple(answer[: asking.index]),
            params=_params(said.params, asking.sampling or {}),
            seed=window.seed_of(asking.request),
            answer=number,
            salt=said.salt,
            top=_FUNNEL_TOP,
        )
        try:
            async with self._one:
                found = await service.client.funnel(moment)
        except PellucidError as error:
            raise await service.refusal(error, "sampling") from error
        body = {
            **_funnel(found, service.tokenizer),
            "chosen": answer[asking.index],
            "without_form": said.params.structured_outputs is not None,
        }
        return Response(dumps(body), media_type="application/json")


async def _asked(request: Request, name: str) -> tuple[Service, Said, Window]:
    """What is remembered of a request. Raises `ApiError` 404, or 403 for who may not read it."""
    service: Service = request.app.state.service
    hubs: Hubs = request.app.state.hubs
    hub = hubs.of(request)
    said, journey = service.journeys.said(name), service.journeys.of(name)
    if said is None or journey is None:
        raise ApiError(404, f"request {name[:200]!r} is not known here, or is no longer remembered")
    tenant: bytes = getattr(request.state, "tenant", b"")
    own = journey.is_of(request.headers.get(VIEWER_HEADER)) and said.tenant == tenant
    if not own and not service.settings.show_prompts:
        raise ApiError(
            403,
            "the texts of others are not shown here: read a request with the X-Pellucid-Viewer "
            "header that it was made with, or start the server with --show-prompts",
            code="not_yours",
        )
    try:
        _, window = await hub.look()
    except PellucidError as error:
        raise await service.refusal(error) from error
    return service, said, window


async def _chances(
    service: Service, said: Said, answer: tuple[int, ...]
) -> Sequence[Mapping[int, TokenLogprob] | None]:
    if not answer:
        return []
    client: EngineClient = service.client
    try:
        return await client.chances(tuple(said.prompt), answer, _TOP, said.salt)
    except PellucidError as error:
        raise await service.refusal(error) from error


def _number(request: Request, said: Said) -> int:
    given = request.query_params.get("answer", "0")
    if not given.isdecimal() or len(given) > 6 or int(given) >= len(said.answers):
        raise bad_request(f"answer must be from 0 to {len(said.answers) - 1}", "answer")
    return int(given)


def _pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[dict[str, Any]]:
    return [{"id": token, "text": tokenizer.token_text(token)} for token in ids]


def _tokens(
    tokenizer: Tokenizer,
    said: Said,
    number: int,
    chances: Sequence[Mapping[int, TokenLogprob] | None],
    steps: Mapping[int, Sequence[int]],
) -> list[dict[str, Any]]:
    times = said.times[number]
    of_step = steps.get(number, ())
    found = []
    for index, (token, entries) in enumerate(zip(said.answers[number], chances, strict=False)):
        entries = entries or {}
        own = entries.get(token)
        found.append(
            {
                "index": index,
                "id": token,
                "text": tokenizer.token_text(token),
                "logprob": None if own is None else own.logprob,
                "rank": None if own is None else own.rank,
                "top": _top(tokenizer, entries),
                "ms_since_last": round(1000 * (times[index] - times[index - 1]), 3)
                if index
                else None,
                "step": of_step[index] if index < len(of_step) else None,
            }
        )
    return found


def _top(tokenizer: Tokenizer, entries: Mapping[int, TokenLogprob]) -> list[list[Any]]:
    ranked = sorted(entries.values(), key=lambda entry: entry.rank or 0)[:_TOP]
    return [[e.token_id, tokenizer.token_text(e.token_id), e.logprob] for e in ranked]


_SAMPLING: Final = frozenset(field.name for field in fields(SamplingParams))


def _params(params: SamplingParams, given: Mapping[str, Any]) -> SamplingParams:
    """`params` with what is `given` in their place. Raises `ApiError`."""
    for name in given:
        if name not in _SAMPLING or name in ("n", "structured_outputs", "logprobs", "seed"):
            raise bad_request(f"sampling.{name[:100]} is no field of it", f"sampling.{name[:100]}")
    try:
        return replace(params, structured_outputs=None, logprobs=None, **given)
    except BadInput as error:
        raise bad_request(f"sampling.{error}", "sampling") from error


def _funnel(found: Funnel, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "stages": [_stage(stage, tokenizer) for stage in found.stages],
        "drawn": found.drawn,
        "text": tokenizer.token_text(found.drawn),
    }


def _stage(stage: Sieve, tokenizer: Tokenizer) -> dict[str, Any]:
    top = [[token, tokenizer.token_text(token), share] for token, share in stage.top]
    return {"name": stage.name, "left": stage.left, "top": top}
