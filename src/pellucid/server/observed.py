"""What is written down of each HTTP request: a count, and a line in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Set

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment
from pellucid.server.guard import Watched
from pellucid.server.live.journeys import Journey
from pellucid.server.metrics import Metrics
from pellucid.text import Tokenizer

logger = logging.getLogger("pellucid.access")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Observed:
    """Counts requests by route, and logs them if `log`; what they hold is not looked at.

    paths: the routes' own. Others are counted as "other", so that a stranger makes no new series.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Set[str], log: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 499  # nobody was there to be answered

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.answered(self._handler(scope["path"]), method, status)
            if self._log:
                self._say(scope, status, time.monotonic() - began)

    def _handler(self, path: str) -> str:
        if path in self._paths:
            return path
        if path.startswith("/web/"):
            return "/web/{path}"
        if path.startswith("/guide/"):
            return "/guide/{name}"
        return "/v1/models/{name}" if path.startswith("/v1/models/") else "other"

    def _say(self, scope: Scope, status: int, seconds: float) -> None:
        client = scope.get("client")
        logger.info(
            "request",
            extra={
                "request_id": scope["state"]["request_id"],
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "duration_ms": round(1000 * seconds, 1),
                "client": client[0] if client else None,
                **({"replica": replica} if (replica := _replica(scope)) else {}),
            },
        )


def _replica(scope: Scope) -> str:
    """Which one answered, where there are some."""
    journey: Journey = scope["state"]["journey"]
    return journey.answered_by


class PromptLog:
    """A `Watcher` that writes prompts to the log: asked for by name, or not made at all."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def began(self, request: Watched) -> None:
        prompt = self._tokenizer.decode(request.prompt_token_ids, skip_special_tokens=False)
        logger.info("prompt", extra={"request_id": request.request_id, "prompt": prompt})

    def grew(self, request: Watched, increment: Increment, now: float) -> None:
        """Answers are not written down."""

    def ended(self, request: Watched, error: PellucidError | None) -> None:
        """Nothing more."""

    def refused(self, reason: str) -> None:
        """Nothing more."""
