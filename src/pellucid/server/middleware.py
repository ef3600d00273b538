"""The outer layers of the application, as plain ASGI so that a stream costs nothing here: an id for
each request, the key, and a bound on the body."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.server.arrivals import ARRIVED
from pellucid.server.errors import ApiError
from pellucid.server.live.journeys import VIEWER_HEADER, Journey

OPEN_PATHS: Final = frozenset({"/health", "/"})
OPEN_PREFIX: Final = "/web/"
"""Answered without a key: whether the engine is well, and pages that hold nothing of anyone's."""

GUIDE: Final = "/guide"
LOOK: Final = "/guide/look"
"""The guide is read without a key; what its figures ask for needs one."""

REPLICA_HEADER: Final = "X-Pellucid-Replica"
"""Which replica answers, where there are some: of a stream the one that took it."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestIds:
    """Gives each request an id, its own `X-Request-Id` if it is one, and says it in the answer,
    with the replica that answers.
    Tells its journey from here on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        given = asked.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
        state = scope.setdefault("state", {})
        journey = Journey(asked.get(VIEWER_HEADER), state.get(ARRIVED))
        state.update(request_id=request_id, journey=journey)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Request-Id", request_id)
                if journey.replicas:
                    headers[REPLICA_HEADER] = journey.answered_by
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                journey.has_sent()

        await self._app(scope, receive, send_with_id)


class Keys:
    """Lets requests with one of the keys pass, and tells the rest of the application whose they
    are: a digest in `state.tenant`, empty where no key is asked for.

    Digests are compared, every one of them, in constant time.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tenant = self._tenant(Headers(scope=scope))
        if tenant is None and not _is_open(scope["path"]):
            error = ApiError(
                401, "a valid API key is needed: send it as `Authorization: Bearer KEY`"
            )
            await error.response(scope["path"])(scope, receive, send)
            return
        scope.setdefault("state", {})["tenant"] = tenant or b""
        await self._app(scope, receive, send)

    def _tenant(self, headers: Headers) -> bytes | None:
        if not self._digests:
            return b""
        given = _digest(_key_given(headers))
        found = [hmac.compare_digest(given, digest) for digest in self._digests]
        return given if any(found) else None


class BodyLimit:
    """Refuses a body of more than `limit` bytes, as soon as it is known to be."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdigit() and (len(announced) > 18 or int(announced) > self._limit):
            response = self._error().response(scope["path"], {"Connection": "close"})
            await response(scope, receive, send)
            return
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._limit:
                    raise self._error()
            return message

        await self._app(scope, bounded, send)

    def _error(self) -> ApiError:
        return ApiError(413, f"the body is above the {self._limit} bytes that are read: send less")


def _is_open(path: str) -> bool:
    of_the_guide = path == GUIDE or path.startswith(f"{GUIDE}/")
    of_pages = path in OPEN_PATHS or path.startswith(OPEN_PREFIX)
    return of_pages or (of_the_guide and path != LOOK)


def _key_given(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        return key.strip()
    return headers.get("x-api-key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
