"""`GET /metrics`: what Prometheus reads."""

from __future__ import annotations

import contextlib

from starlette.requests import Request
from starlette.responses import Response

from pellucid.core.errors import PellucidError
from pellucid.engine.stats import EngineStats
from pellucid.server.guard import Guard
from pellucid.server.metrics import Metrics


async def metrics_page(request: Request) -> Response:
    """The metrics, also while there is no engine."""
    guard: Guard = request.app.state.guard
    metrics: Metrics = request.app.state.metrics
    stats: EngineStats | None = None
    with contextlib.suppress(PellucidError):
        stats = await guard.stats()
    metrics.engine(stats, guard.restarts)
    content, content_type = metrics.page(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})
