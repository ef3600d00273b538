"""The application: routes, the outer layers, and what becomes of every exception."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pellucid import __version__
from pellucid.engine.client import EngineClient
from pellucid.server.errors import ApiError, api_error_of
from pellucid.server.guard import Guard, Watcher
from pellucid.server.guide import routes as guide
from pellucid.server.live import routes as live
from pellucid.server.live.capacity import Forecasts
from pellucid.server.live.hubs import Hubs
from pellucid.server.live.journeys import Journeys
from pellucid.server.live.texts import Texts
from pellucid.server.metrics import Metrics
from pellucid.server.middleware import BodyLimit, Keys, RequestIds
from pellucid.server.observed import Observed, PromptLog
from pellucid.server.openapi import document
from pellucid.server.origins import Origins
from pellucid.server.routes.about import health, model, models, props, version
from pellucid.server.routes.chat import chat_completions
from pellucid.server.routes.completions import completions
from pellucid.server.routes.embeddings import embeddings
from pellucid.server.routes.measured import metrics_page
from pellucid.server.routes.messages import count_tokens, messages
from pellucid.server.routes.pages import asset, index
from pellucid.server.routes.pieces import token_pieces, tokenizers
from pellucid.server.routes.responses import responses
from pellucid.server.routes.tokens import detokenize, tokenize
from pellucid.server.service import Service
from pellucid.server.settings import Settings
from pellucid.server.tokenizers import Tokenizers
from pellucid.server.tracing import Traced, Traces

logger = logging.getLogger("pellucid.server")

Endpoint = Callable[[Request], Awaitable[Response]]

_ROUTES: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("POST", "/v1/completions", completions),
    ("POST", "/v1/chat/completions", chat_completions),
    ("POST", "/v1/responses", responses),
    ("POST", "/v1/messages", messages),
    ("POST", "/v1/messages/count_tokens", count_tokens),
    ("POST", "/v1/embeddings", embeddings),
    ("POST", "/tokenize", tokenize),
    ("POST", "/tokenize/pieces", token_pieces),
    ("GET", "/tokenize/tokenizers", tokenizers),
    ("POST", "/detokenize", detokenize),
    ("GET", "/v1/models", models),
    ("GET", "/v1/models/{name:path}", model),
    ("GET", "/health", health),
    ("GET", "/metrics", metrics_page),
    ("GET", "/version", version),
    ("GET", "/props", props),
    ("GET", "/live/about", live.about),
    ("GET", "/live/records", live.records),
    ("GET", "/live/feed", live.feed),
    ("GET", "/live/requests/{id:path}", live.one_request),
    ("POST", "/live/funnel", live.funnel),
    ("GET", "/live/recording", live.whole_recording),
    ("GET", "/live/trace", live.trace),
    ("GET", "/live/pages", live.pages),
    ("GET", "/live/prefix", live.prefix),
    ("GET", "/live/capacity", live.capacity),
    ("GET", "/", index),
    ("GET", "/web/{path:path}", asset),
    ("GET", "/guide", guide.page),
    ("GET", "/guide/{name}", guide.page),
    ("GET", "/guide/assets/{path:path}", guide.asset),
    ("POST", "/guide/look", guide.look),
)


def create_app(
    client: EngineClient, settings: Settings | None = None, traces: Traces | None = None
) -> FastAPI:
    """An application that answers with `client`; whoever made the client closes it.

    Its `state.guard` is what requests pass on their way to the engine.
    """
    settings = settings or Settings()
    metrics = Metrics(settings.model_name, client.model.max_model_len)
    journeys = Journeys()
    watchers: list[Watcher] = [metrics, journeys]
    if settings.log_prompts:
        watchers.append(PromptLog(client.tokenizer))
    if traces is not None:
        watchers.append(traces)
    guard = Guard(client, settings.guard, watchers)
    paths = frozenset(path for _, path, _ in _ROUTES)
    app = FastAPI(
        title="Pellucid",
        version=__version__,
        redirect_slashes=False,  # a redirect names whatever host the request does
        docs_url=None,  # pages that would be fetched from elsewhere
        redoc_url=None,
        middleware=[
            Middleware(RequestIds),
            Middleware(Observed, metrics=metrics, paths=paths, log=settings.access_log),
            *([] if traces is None else [Middleware(Traced, traces=traces)]),
            Middleware(
                Origins, allowed=settings.allowed_origins, with_keys=bool(settings.api_keys)
            ),
            Middleware(Keys, keys=settings.api_keys),
            Middleware(BodyLimit, limit=settings.limits.body_bytes),
        ],
        exception_handlers={
            ApiError: _say,
            HTTPException: _say_http,
            ClientDisconnect: _say_nothing,
            Exception: _say_fault,
        },
    )
    app.state.service = Service(guard, settings, journeys)
    app.state.guide = guide.Guide(app.state.service)
    app.state.guard = guard
    app.state.metrics = metrics
    app.state.hubs = hubs = Hubs(guard, journeys, ids=settings.show_prompts)
    app.state.hub = hubs.first
    app.state.texts = Texts()
    guard.at_closing.append(hubs.close)
    app.state.forecasts = forecasts = Forecasts()
    guard.at_closing.append(forecasts.close)
    app.state.tokenizers = Tokenizers(settings.model_name, client.tokenizer)
    for method, path, endpoint in _ROUTES:
        app.add_route(path, endpoint, methods=[method], include_in_schema=False)
    described = document(with_keys=bool(settings.api_keys))
    app.openapi = lambda: described  # type: ignore[method-assign]
    return app


async def _say(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response(request.url.path, prefer=request.headers.get("prefer", ""))


async def _say_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: an unknown path, another method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    said: dict[int, str] = {
        404: f"{path[:200]!r} is not served here: the routes are in /openapi.json",
        405: f"{path[:200]!r} is not served to {request.method}",
    }
    told = ApiError(error.status_code, said.get(error.status_code, str(error.detail)))
    return told.response(path, error.headers)


async def _say_nothing(request: Request, error: Exception) -> Response:
    """The client left before it had asked: nobody reads this."""
    return Response(status_code=400)


async def _say_fault(request: Request, error: Exception) -> Response:
    logger.error("request %s failed", request.state.request_id, exc_info=error)
    told = api_error_of(error)
    headers: dict[str, Any] = {"X-Request-Id": request.state.request_id}
    return told.response(request.url.path, headers)
