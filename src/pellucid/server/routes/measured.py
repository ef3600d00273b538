"""`GET /metrics`: what Prometheus reads."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from pellucid.core.errors import PellucidError
from pellucid.engine.stats import EngineStats
from pellucid.server.guard import Guard
from pellucid.server.metrics import Metrics

_PATIENCE_S: Final = 1.0  # for an engine that hangs: whoever scrapes shall learn of it


async def metrics_page(request: Request) -> Response:
    """The metrics, also while there is no engine."""
    guard: Guard = request.app.state.guard
    metrics: Metrics = request.app.state.metrics
    stats: EngineStats | None = None
    with contextlib.suppress(PellucidError, TimeoutError):
        fleet = await asyncio.wait_for(guard.fleet(), _PATIENCE_S)
        if fleet is not None:  # of one look: each replica's numbers add up to those of all
            metrics.fleet(fleet)
            stats = fleet.stats if fleet.reports else None
        else:
            stats = await asyncio.wait_for(guard.stats(), _PATIENCE_S)
        if not metrics.knows_cache:  # it stays as it is when an engine is started again
            metrics.cache(await asyncio.wait_for(guard.about(), _PATIENCE_S))
    metrics.engine(stats, guard.restarts)
    metrics.tasks(len(asyncio.all_tasks()))
    content, content_type = metrics.page(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})
