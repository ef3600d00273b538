"""Requests without HTTP: what the routes would answer, for lines of a batch."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from pellucid.engine.client import EngineClient
from pellucid.server.errors import ApiError, api_error_of, bad_request
from pellucid.server.guard import Guard, GuardLimits
from pellucid.server.reading import Read, validate
from pellucid.server.routes import chat, completions, embeddings, responses
from pellucid.server.routes.streaming import Begin
from pellucid.server.service import Call, Caller, Service
from pellucid.server.settings import Settings
from pellucid.server.wire.batch import BatchLine
from pellucid.server.wire.chat import ChatRequest
from pellucid.server.wire.completions import CompletionRequest
from pellucid.server.wire.responses import ResponsesRequest
from pellucid.server.wire.tokens import EmbeddingRequest

logger = logging.getLogger("pellucid.server")

_ANY: Final = GuardLimits(running=1 << 62)  # how much a batch asks at once is its own affair

Answer = Callable[[Service, Call, Read[Any]], Awaitable[dict[str, Any]]]


def _whole(begin: Begin[Any]) -> Answer:
    async def answer(service: Service, call: Call, asking: Read[Any]) -> dict[str, Any]:
        return await begin(service, call, asking).whole()

    return answer


_ROUTES: Final[dict[str, tuple[type[BaseModel], Answer]]] = {
    "/v1/chat/completions": (ChatRequest, _whole(chat.Answering)),
    "/v1/completions": (CompletionRequest, _whole(completions.Answering)),
    "/v1/embeddings": (EmbeddingRequest, embeddings.answer),
    "/v1/responses": (ResponsesRequest, _whole(responses.Answering)),
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server would have said: a status and a body. `error` is why it is no answer."""

    status: int
    body: dict[str, Any]
    error: ApiError | None = None


def refused(error: ApiError) -> Reply:
    """A refusal as it is said."""
    return Reply(error.status, error.body(), error)


class Offline:
    """Answers requests with `client`, as an application of these settings would."""

    def __init__(self, client: EngineClient, settings: Settings) -> None:
        self._service = Service(Guard(client, _ANY), settings)

    async def answer(self, line: BatchLine, caller: Caller, *, lenient: bool = False) -> Reply:
        """The reply to a line; whatever goes wrong is a reply too. The line's body is used up."""
        try:
            return Reply(200, await self._answered(line, caller, lenient))
        except ApiError as error:
            return refused(error)
        except Exception as error:
            logger.error("request %s failed", caller.id, exc_info=error)
            return refused(api_error_of(error))

    async def _answered(self, line: BatchLine, caller: Caller, lenient: bool) -> dict[str, Any]:
        if line.url not in _ROUTES:
            raise ApiError(
                404, f"url {line.url[:200]!r} is not answered in a batch: use {', '.join(_ROUTES)}"
            )
        model, answer = _ROUTES[line.url]
        lenient = lenient or line.body.get("lenient") is True
        unread = self._service.unread_names
        asking = validate(line.body, model, lenient=lenient, unread=unread)
        if getattr(asking.asked, "stream", None):
            raise bad_request("stream: a line is answered whole: leave it out", "stream")
        call = self._service.call_of(caller, asking.asked)
        return await answer(self._service, call, asking)
