"""`/live/...`: what the engine is and does, for whoever may look."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from pellucid.core.errors import PellucidError
from pellucid.server.errors import ApiError
from pellucid.server.events import EventStream, dumps, event
from pellucid.server.live.about import about_json
from pellucid.server.live.hub import Hub
from pellucid.server.routes.streaming import event_stream
from pellucid.server.service import Service

_NO_STORE = {"Cache-Control": "no-store"}


async def about(request: Request) -> Response:
    """What the engine is: docs/records.md says what each field means."""
    service: Service = request.app.state.service
    hub: Hub = request.app.state.hub
    try:
        found = await hub.about()
    except PellucidError as error:
        raise await service.refusal(error) from error
    settings = service.settings
    return _json(dumps(about_json(found, settings.model_name, settings.show_prompts)))


async def records(request: Request) -> Response:
    """The last records, once."""
    service: Service = request.app.state.service
    hub: Hub = request.app.state.hub
    try:
        return _json(await hub.snapshot())
    except PellucidError as error:
        raise await service.refusal(error) from error


async def feed(request: Request) -> EventStream:
    """The records as they come: an event of the last ones, then one for what is new, at most 30
    times a second."""
    service: Service = request.app.state.service
    return event_stream(service, _events(request.app.state.hub), {}, _failed)


async def _events(hub: Hub) -> AsyncGenerator[bytes, None]:
    async with hub.viewer() as viewer:
        async for message in viewer:
            yield b"event: records\ndata: " + message + b"\n\n"


def _failed(error: ApiError) -> bytes:
    return event(error.body(), "error")


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json", headers=_NO_STORE)
