"""Server-sent events: a response that speaks while its source does.

While nothing is to be said a comment is sent now and then, which clients skip and proxies see. A
client that leaves, or that leaves what was sent unread for too long, closes the source, and with it
the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from json.encoder import encode_basestring
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pellucid.server.errors import ApiError

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

# Shares of the longest silence: what is sent then takes a while on a busy machine, and before a
# request is first seen it may have waited where nobody saw it.
_ON_TIME: Final = 0.8
_AT_FIRST: Final = 0.5

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

logger = logging.getLogger("pellucid.server")

Result = TypeVar("Result")


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return _encode(value).encode()


def event(value: Any, name: str | None = None) -> bytes:
    """One event with a JSON object as its data."""
    data = b"data: " + dumps(value) + b"\n\n"
    return data if name is None else b"event: " + name.encode() + b"\n" + data


class Events:
    """Events that differ in a few values alone, as nearly all of a stream do: put together from
    bytes made once. `frame` makes the value of one from its holes, which must stand in the JSON in
    the order of its parameters, nothing unknown among or after them; `of` takes what fills them, as
    JSON."""

    def __init__(self, frame: Callable[..., Any], holes: int) -> None:
        self._frame, self._holes = frame, holes

    @cached_property
    def _pieces(self) -> tuple[bytes, list[bytes]]:
        """What comes before the first hole, and after each: made when first needed, since many a
        stream waits long for its first token."""
        holes = self._holes
        marks = [f"\ue000{hole}" for hole in range(holes)]
        rest = event(self._frame(*marks))
        parts: list[bytes] = []
        for mark in reversed(marks):  # what comes before the holes may be anything
            rest, _, after = rest.rpartition(dumps(mark))
            parts.insert(0, after)
        return rest, parts

    def of(self, *values: bytes) -> bytes:
        begin, parts = self._pieces
        found = [piece for pair in zip(values, parts, strict=True) for piece in pair]
        return b"".join([begin, *found])


def string(text: str) -> bytes:
    """A text as JSON."""
    return encode_basestring(text).encode()


def numbers(values: Sequence[int]) -> bytes:
    """A list of whole numbers as JSON."""
    return b"[%d]" % values[0] if len(values) == 1 else dumps(list(values))


class EventStream(Response):
    """Sends what `source` yields, each part at once. The source says its errors as events."""

    media_type = "text/event-stream"

    def __init__(
        self,
        source: AsyncGenerator[bytes, None],
        *,
        keep_alive_s: float,
        stalled_client_s: float,
        headers: Mapping[str, str] | None = None,
        arrived: float | None = None,
    ) -> None:
        """`arrived`: when its client asked, by `time.monotonic`; None: now."""
        self.status_code = 200
        self.background = None
        self.init_headers(
            {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})}
        )
        self._source = source
        self._keep_alive_s = keep_alive_s
        self._stalled_client_s = stalled_client_s
        self._arrived = time.monotonic() if arrived is None else arrived
        self._last_sent = 0.0  # of the events and comments; 0: nothing yet
        self._sending_since: float | None = None
        self._begun = False  # the head is out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [
            asyncio.create_task(self._speak(send)),
            asyncio.create_task(gone(receive)),
            asyncio.create_task(self._watch(send)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(tasks)
            await self._source.aclose()
        if tasks[0] in done and not tasks[0].cancelled():
            _say_failure(tasks[0])

    async def _speak(self, send: Send) -> None:
        self._sending_since = time.monotonic()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self._sending_since, self._begun = None, True
        async for part in self._source:  # as `_send` does, without a call for each
            self._sending_since = self._last_sent = time.monotonic()
            await send({"type": "http.response.body", "body": part, "more_body": True})
            self._sending_since = None
        await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, message: dict[str, Any]) -> None:
        self._sending_since = self._last_sent = time.monotonic()
        await send(message)
        self._sending_since = None

    async def _watch(self, send: Send) -> None:
        """Keeps an idle stream alive; returns when the client has stopped reading."""
        while True:
            now = time.monotonic()
            pause = self._comment_is_due() - now
            if self._sending_since is not None:
                unread_s = now - self._sending_since
                if unread_s >= self._stalled_client_s:
                    logger.warning("a client left its stream unread: its request is ended")
                    return
                pause = min(self._keep_alive_s, self._stalled_client_s - unread_s)
            elif pause <= 0 and self._begun:
                await self._send(
                    send, {"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True}
                )
                continue
            await asyncio.sleep(max(pause, 0))

    def _comment_is_due(self) -> float:
        """When, if nothing else is said before."""
        if not self._last_sent:
            return self._arrived + _AT_FIRST * self._keep_alive_s
        return self._last_sent + _ON_TIME * self._keep_alive_s


async def gone(receive: Receive) -> None:
    """Returns when the client has left. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` returns; it is cancelled if the client leaves before. Raises `ApiError` 499 then,
    which nobody reads."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ApiError(499, "the client left", code="client_closed_request")
        return working.result()
    finally:
        await _end([working, leaving])


async def _end(tasks: list[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


def _say_failure(task: asyncio.Task[None]) -> None:
    error = task.exception()
    if error is not None and not isinstance(error, OSError):
        logger.error("a stream failed", exc_info=error)
