"""`/live/...`: what the engine is and does, for whoever may look."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from pellucid.core.errors import PellucidError
from pellucid.server.errors import ApiError
from pellucid.server.events import EventStream, dumps, event, unless_gone
from pellucid.server.live.about import about_json
from pellucid.server.live.capacity import Forecasts, read_mix
from pellucid.server.live.hub import Hub
from pellucid.server.live.hubs import Hubs
from pellucid.server.live.pages import pages_json, prefix_json
from pellucid.server.live.recording import recording
from pellucid.server.live.texts import Texts
from pellucid.server.live.trace import chrome_trace
from pellucid.server.reading import switch
from pellucid.server.routes.streaming import event_stream
from pellucid.server.service import Service

_NO_STORE = {"Cache-Control": "no-store"}


async def about(request: Request) -> Response:
    """What the engine is: docs/records.md says what each field means."""
    settings = _service(request).settings
    async with _hub(request) as hub:
        found = await hub.about()
    hubs: Hubs = request.app.state.hubs
    body = about_json(found, settings.model_name, settings.show_prompts)
    return _json(dumps({**body, "replicas": hubs.told(request)}))


async def records(request: Request) -> Response:
    """The last records, once."""
    async with _hub(request) as hub:
        return _json(await hub.snapshot())


async def pages(request: Request) -> Response:
    """Who owns which page of the KV cache; the steps of the feed say how that goes on."""
    async with _hub(request) as hub:
        step, found, window = await hub.page_map()
    body = pages_json(step, found, window, window.limits)
    return _json(dumps({"engine": str(window.engine), **body}))


async def prefix(request: Request) -> Response:
    """The tree of what the prefix cache holds; texts only where prompts may be shown."""
    service = _service(request)
    shown = service.settings.show_prompts
    async with _hub(request) as hub:
        step, found, window = await hub.page_map(shown)
    decode = partial(service.tokenizer.decode, skip_special_tokens=False) if shown else None
    body = prefix_json(step, found, window.limits, decode)
    return _json(dumps({"engine": str(window.engine), **body}))


async def whole_recording(request: Request) -> Response:
    """The last records with what the engine is, as a file that the pages open."""
    name = f"pellucid-{time.strftime('%Y%m%d-%H%M%S')}.json"
    return _file(await _recorded(request), name)


async def trace(request: Request) -> Response:
    """The same as a Chrome trace."""
    whole = json.loads(await _recorded(request))
    name = f"pellucid-trace-{time.strftime('%Y%m%d-%H%M%S')}.json"
    return _file(dumps(chrome_trace(whole)), name)


async def capacity(request: Request) -> Response:
    """Latency against load of an engine like this one, simulated, for the mix of the query."""
    async with _hub(request) as hub:
        found = await hub.about()
    forecasts: Forecasts = request.app.state.forecasts
    asked = forecasts.of(found, read_mix(request, found))
    return _json(dumps(await unless_gone(request, asked)))


async def _recorded(request: Request) -> bytes:
    settings = _service(request).settings
    async with _hub(request) as hub:
        found = await hub.about()
        whole = await hub.snapshot()
    about = dumps(about_json(found, settings.model_name, settings.show_prompts))
    return recording(about, whole, {"ended": time.time()})


def _file(content: bytes, name: str) -> Response:
    headers = {**_NO_STORE, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/json", headers=headers)


async def feed(request: Request) -> EventStream:
    """The records as they come: an event of the last ones, then one for what is new, at most 30
    times a second; with `?spans=1` the parts of forward passes too."""
    spans = switch(request, "spans")
    hubs: Hubs = request.app.state.hubs
    events = _events(hubs.of(request), spans)
    return event_stream(_service(request), events, {}, _failed)


async def one_request(request: Request) -> Response:
    """The tokens of a request, for whoever may read them."""
    texts: Texts = request.app.state.texts
    return await texts.one_request(request)


async def funnel(request: Request) -> Response:
    """How a token was chosen, or would be by other parameters."""
    texts: Texts = request.app.state.texts
    return await texts.funnel(request)


async def _events(hub: Hub, spans: bool) -> AsyncGenerator[bytes, None]:
    async with hub.viewer(spans=spans) as viewer:
        async for message in viewer:
            yield b"event: records\ndata: " + message + b"\n\n"


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


@contextlib.asynccontextmanager
async def _hub(request: Request) -> AsyncIterator[Hub]:
    """The hub of whatever is asked after; what it raises becomes what a client is told."""
    hubs: Hubs = request.app.state.hubs
    try:
        yield hubs.of(request)
    except PellucidError as error:
        raise await _service(request).refusal(error) from error


def _failed(error: ApiError) -> bytes:
    return event(error.body(), "error")


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json", headers=_NO_STORE)
