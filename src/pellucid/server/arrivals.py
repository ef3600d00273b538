"""Arrivals: a connection before its request is one, and after its response was given.

What uvicorn leaves open is done here: when a request arrived is noted, what is no HTTP is refused
in the one envelope, a head may only be so long, and who stands still is let go: a client that
begins a request and does not go on, or that leaves a whole response unread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import partial
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from pellucid.server.errors import ApiError

MAX_HEAD: Final = 64 << 10  # bytes of a request line and its headers

_OF_UPGRADES: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})

ARRIVED: Final = "arrived"
"""In a request's `scope["state"]`: when its first byte was read, by `time.monotonic`."""

logger = logging.getLogger("pellucid.server")


class Arrivals(HttpToolsProtocol):
    """One connection. `patience_s` is how long its client may stand still."""

    def __init__(self, *given: Any, patience_s: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._patience_s = patience_s
        self._in_head = self._owes = True  # a connection is made for a request
        self._n_head = 0
        self._began = self._heard = time.monotonic()
        self._unsent = 0
        self._cycles: list[RequestResponseCycle] = []  # one, but for requests sent ahead
        self._looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for cycle in self._cycles:  # uvicorn tells the last alone
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc if self.cycle is not None else None)

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        if self._in_head:
            self._n_head += len(data)
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse(400, "this is no HTTP request: send HTTP/1.1")
        if self._in_head and self._n_head > MAX_HEAD and not self.transport.is_closing():
            self._refuse(431, f"a request's head may have {MAX_HEAD} bytes: send shorter headers")

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as ended:
            # The parser takes a request for another protocol to have no body.
            head = self._head_without_upgrade()
            self._make_parser()
            self._feed(head + data[ended.args[0] :])

    def _make_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it

    def _head_without_upgrade(self) -> bytes:
        """The request again, by a client that would rather speak another protocol (HTTP/2, mostly)
        and is answered in this one."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            raise httptools.HttpParserError("this is no proxy")
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] not in _OF_UPGRADES]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._owes = True
        self._began = self._heard
        self.scope["state"][ARRIVED] = self._heard

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():  # it comes again, see `_feed`
            return
        super().on_headers_complete()
        self._in_head = False
        self._n_head = 0
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
        if self.cycle is not None:
            self._cycles.append(self.cycle)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._owes = False

    def _refuse(self, status: int, message: str) -> None:
        """The last that this connection hears."""
        error = ApiError(status, message)
        body = json.dumps(error.body()).encode()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        self.transport.close()

    def _look_later(self) -> None:
        self._looking = self.loop.call_later(self._patience_s / 2, self._look)

    def _look(self) -> None:
        """Lets the client go if it has stood still since the last look."""
        self._look_later()
        now = time.monotonic()
        since = self._began if self._in_head else self._heard
        unsent = self.transport.get_write_buffer_size()
        if self._owes and not self.transport.is_closing():
            if now - since >= self._patience_s:
                logger.info("a client did not go on with its request: it is let go")
                self.transport.abort()
        elif unsent and unsent == self._unsent and self._has_answered():
            logger.info("a client left its response unread: it is let go")
            self.transport.abort()
        self._unsent = unsent

    def _has_answered(self) -> bool:
        """Whether nothing more is to be written; a stream that goes on looks after itself."""
        return self.transport.is_closing() or self.cycle is None or self.cycle.response_complete


def arrivals(patience_s: float) -> Any:
    """What makes uvicorn's connections."""
    return partial(Arrivals, patience_s=patience_s)
