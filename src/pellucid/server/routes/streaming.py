"""A source of events as a response, under the application's settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

from pellucid.server.errors import ApiError
from pellucid.server.events import DONE, EventStream, event
from pellucid.server.merging import with_errors
from pellucid.server.service import Service


def openai_error(error: ApiError) -> bytes:
    """An error inside a stream, and the stream's end."""
    return event(error.body()) + DONE


def event_stream(
    service: Service,
    source: AsyncGenerator[bytes, None],
    headers: Mapping[str, str],
    error_event: Callable[[ApiError], bytes] = openai_error,
) -> EventStream:
    """The response that carries `source`; what goes wrong in it is said by `error_event`."""
    return EventStream(
        with_errors(source, service.refusal, error_event),
        keep_alive_s=service.settings.keep_alive_s,
        stalled_client_s=service.settings.stalled_client_s,
        headers=headers,
    )
