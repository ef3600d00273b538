"""Connections that are no requests yet, or no longer: answered in the envelope or let go."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from pellucid.server.arrivals import MAX_HEAD
from pellucid.server.events import KEEP_ALIVE, EventStream
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

Make = Callable[..., FakeClient]
Serve = Callable[..., Running]

ASKING = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


def connected(server: Running) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def heard(connection: socket.socket) -> bytes:
    """All until the other side closes."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def told(raw: bytes) -> dict[str, Any]:
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"application/json" in head
    found: dict[str, Any] = json.loads(body)["error"]
    return found


@pytest.mark.parametrize(
    "said",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client
    ],
)
def test_what_is_no_http_is_told_so_in_the_envelope(server: Running, said: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(said)
        error = told(heard(connection))
    assert error["type"] == "invalid_request_error" and "HTTP" in error["message"]
    assert server.http.get("/health").status_code == 200


def test_a_head_without_an_end_is_refused(server: Running) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        sent = 0
        try:
            while sent < 64 * MAX_HEAD:
                sent += connection.send(b"a" * 65536)
        except OSError:
            pass
        raw = heard(connection)
    assert sent < 64 * MAX_HEAD, "headers are read without an end"
    if raw:  # what was sent after it may have reset the connection
        assert b" 431 " in raw and str(MAX_HEAD) in told(raw)["message"]


@pytest.mark.parametrize("said", [b"", b"POST /v1/comp", ASKING, ASKING + b'{"prompt'])
def test_who_does_not_go_on_is_let_go(make_fake: Make, serve: Serve, said: bytes) -> None:
    server = serve(make_fake(), stalled_client_s=0.1)
    with connected(server) as connection:
        connection.sendall(said)
        assert heard(connection) == b""
    server.until(lambda: not server.server.server_state.connections)


def test_who_reads_no_whole_response_is_let_go(make_fake: Make, serve: Serve) -> None:
    server = serve(make_fake(), stalled_client_s=0.1)
    text = "a" * 200_000  # whose tokens are more than the sockets of both sides hold
    body = json.dumps({"prompt": text, "return_token_strs": True}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.url.removeprefix("http://").split(":")
        connection.connect((host, int(port)))
        connection.sendall(head.encode() + body)
        server.until(lambda: bool(server.server.server_state.total_requests))
        assert server.server.server_state.connections, "all of it was taken"
        server.until(lambda: not server.server.server_state.connections)


def test_requests_sent_ahead_end_with_their_client_all_of_them(server: Running) -> None:
    server.call(server.client.gate.clear)
    body = json.dumps({"prompt": "a", "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(server) as connection:
        connection.sendall((head.encode() + body) * 3)
        server.until(lambda: bool(server.client.live))
    server.until(lambda: bool(server.client.abandoned) and not server.client.live)


def test_requests_sent_ahead_are_answered_in_their_order(server: Running) -> None:
    with connected(server) as connection:
        for path in (b"/health", b"/x", b"/version"):
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.sendall(b"GET /props HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        raw = heard(connection)
    places = [raw.index(b"200 OK"), raw.index(b"404 Not Found"), raw.index(b'"version"')]
    assert places == sorted(places) and raw.count(b"HTTP/1.1 ") == 4


def test_another_protocol_is_answered_in_this_one(server: Running) -> None:
    """Java's own client asks for HTTP/2 in this way, with each request."""
    response = server.http.get("/", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    assert response.status_code == 200
    asked = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMA"}
    response = server.post("/v1/completions", {"prompt": "a"}, headers=asked)
    assert response.status_code == 200 and response.json()["choices"]


def test_a_stream_of_a_request_that_waited_unseen_speaks_at_once() -> None:
    """Its silence began when it arrived."""

    async def first_words(arrived: float) -> list[bytes]:
        released = asyncio.Event()

        async def source() -> Any:
            await released.wait()
            yield b"data: x\n\n"

        said: list[bytes] = []

        async def send(message: Any) -> None:
            said.append(message.get("body", b"head"))
            if message.get("body") == KEEP_ALIVE or len(said) > 1:
                released.set()

        async def receive() -> Any:
            await asyncio.sleep(3600)

        stream = EventStream(source(), keep_alive_s=100, stalled_client_s=100, arrived=arrived)
        asyncio.get_running_loop().call_later(1, released.set)
        await stream({"type": "http"}, receive, send)
        return said

    late = asyncio.run(first_words(time.monotonic() - 50))
    assert late == [b"head", KEEP_ALIVE, b"data: x\n\n", b""]
    assert asyncio.run(first_words(time.monotonic())) == [b"head", b"data: x\n\n", b""]


@pytest.mark.parametrize(("hard", "soft"), [(200, 200), (1 << 20, 1 << 16)])
def test_the_systems_soft_limit_of_connections_is_raised(hard: int, soft: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        soft = hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    script = (
        "import resource; from pellucid.server.serving import allow_connections; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (150, {hard})); allow_connections(); "
        f"assert resource.getrlimit(resource.RLIMIT_NOFILE) == ({min(soft, 1 << 16)}, {hard})"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
