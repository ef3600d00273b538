"""From a request to a response, whole or as events, under the application's settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pellucid.server.errors import ApiError
from pellucid.server.events import DONE, EventStream, event, unless_gone
from pellucid.server.merging import with_errors
from pellucid.server.reading import Read, read
from pellucid.server.service import Call, Service

Asked = TypeVar("Asked", bound=BaseModel)


class Answering(Protocol):
    """One request on its way, to be answered in one of two forms."""

    async def whole(self) -> dict[str, Any]:
        """The body of a whole response. Raises `ApiError`."""

    async def open(self) -> None:
        """Raises `ApiError` for what cannot be answered; afterwards the events come."""

    def events(self) -> AsyncGenerator[bytes, None]: ...


Begin = Callable[[Service, Call, Read[Asked]], Answering]


def openai_error(error: ApiError) -> bytes:
    """An error inside a stream, and the stream's end."""
    return event(error.body()) + DONE


def event_stream(
    service: Service,
    source: AsyncGenerator[bytes, None],
    headers: Mapping[str, str],
    error_event: Callable[[ApiError], bytes] = openai_error,
    arrived: float | None = None,
) -> EventStream:
    """The response that carries `source`; what goes wrong in it is said by `error_event`.

    `arrived`: when its client asked.
    """
    return EventStream(
        with_errors(source, service.refusal, error_event),
        keep_alive_s=service.settings.keep_alive_s,
        stalled_client_s=service.settings.stalled_client_s,
        headers=headers,
        arrived=arrived,
    )


async def answered(
    request: Request,
    model: type[Asked],
    begin: Begin[Asked],
    error_event: Callable[[ApiError], bytes] = openai_error,
) -> Response:
    """The response to a request of the form `model`, in the form that it asks for."""
    service: Service = request.app.state.service
    asking = await read(request, model)
    call = service.call(request, asking.asked)
    answering = begin(service, call, asking)
    if not getattr(asking.asked, "stream", None):
        return JSONResponse(await unless_gone(request, answering.whole()), headers=asking.headers)
    await unless_gone(request, answering.open())
    arrived = None if call.journey is None else call.journey.received
    return event_stream(service, answering.events(), asking.headers, error_event, arrived)
