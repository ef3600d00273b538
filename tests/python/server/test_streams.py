"""Streams: kept alive while nothing comes, ended with their client, whole characters alone."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.python.server.fake import FakeClient
from tests.python.server.running import Running, events_of

Make = Callable[..., FakeClient]
Serve = Callable[..., Running]

MESSAGES = [{"role": "user", "content": "hi"}]
GENERATING: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 500},
}
TEXT = "비빔밥 👩🏽‍🚀 naïve ✅ done"


def text_of(path: str, lines: list[str]) -> str:
    """What a stream says, joined."""
    found = ""
    for line in lines:
        if line == "[DONE]":
            continue
        data = json.loads(line)
        if path == "/v1/completions":
            found += "".join(choice["text"] for choice in data["choices"])
        elif path == "/v1/chat/completions":
            found += "".join(c["delta"].get("content") or "" for c in data["choices"])
        elif data["type"] == "response.output_text.delta":
            found += data["delta"]
        elif data["type"] == "content_block_delta":
            found += data["delta"]["text"]
    return found


@pytest.mark.parametrize("path", GENERATING)
def test_characters_are_never_split(server: Running, path: str) -> None:
    """Here each token is one byte."""
    server.client.script = lambda request, index: TEXT
    size = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = {**GENERATING[path], size: 500, "stream": True}
    response = server.post(path, body)
    lines = events_of(response)
    assert text_of(path, lines) == TEXT
    assert "\ufffd" not in response.text
    deltas = [said for line in lines if (said := text_of(path, [line]))]
    assert sum("👩🏽‍🚀" in said for said in deltas) == 1 and len(deltas) > len(TEXT) // 2
    if path != "/v1/messages":
        assert lines[-1] == "[DONE]"
        assert lines.count("[DONE]") == 1


@pytest.mark.parametrize("path", GENERATING)
def test_half_a_character_at_the_end_is_left_out(server: Running, path: str) -> None:
    server.client.script = lambda request, index: "ab✅"
    size = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    for n_tokens in (3, 4):
        body = {**GENERATING[path], size: n_tokens}
        assert text_of(path, events_of(server.post(path, {**body, "stream": True}))) == "ab"
        whole = server.post(path, body)
        assert "\ufffd" not in whole.text and "\\ufffd" not in whole.text
        assert '"ab"' in whole.text


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_never_leaks(server: Running, path: str, include: bool) -> None:
    server.client.script = lambda request, index: "alpha beta gamma delta"
    body = {**GENERATING[path], "stop": ["ta gam"], "max_tokens": 100}
    body["include_stop_str_in_output"] = include
    expected = "alpha beta gam" if include else "alpha be"
    choice = server.post(path, body).json()["choices"][0]
    said = choice["text"] if "text" in choice else choice["message"]["content"]
    assert (said, choice["finish_reason"], choice["stop_reason"]) == (expected, "stop", "ta gam")
    lines = events_of(server.post(path, {**body, "stream": True}))
    assert text_of(path, lines) == expected
    ends = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert ends[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("path", GENERATING)
def test_an_idle_stream_is_kept_alive_by_comments(make_fake: Make, serve: Serve, path: str) -> None:
    server = serve(make_fake(), keep_alive_s=0.05)
    server.call(server.client.gate.clear)
    with server.http.stream("POST", path, json={**GENERATING[path], "stream": True}) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        for _ in range(3):
            while next(lines) != ": keep-alive":
                pass
        server.call(server.client.gate.set)
        rest = "\n".join(lines)
    data = [line.removeprefix("data: ") for line in rest.split("\n") if line.startswith("data: ")]
    assert text_of(path, data) == "Hello, world."


def leave(server: Running, path: str, body: dict[str, Any], *, after: bytes | None) -> None:
    """Ask, and close the connection once `after` has come; at once for None."""
    host, port = server.url.removeprefix("http://").split(":")
    data = json.dumps(body).encode()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        if after is None:
            server.until(lambda: bool(server.client.live))
            return
        received = b""
        while after not in received:
            more = connection.recv(4096)
            assert more, received
            received += more


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("where", ["streaming", "before the first token", "not streaming"])
def test_a_client_that_leaves_ends_its_request(server: Running, path: str, where: str) -> None:
    server.client.script = lambda request, index: "a" * 1500
    size = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = {**GENERATING[path], size: 1500, "stream": where != "not streaming"}
    if where == "streaming":
        after: bytes | None = b'a"'
    else:
        server.call(server.client.gate.clear)
        after = b"200 OK" if where == "before the first token" else None
    leave(server, path, body, after=after)
    server.until(lambda: len(server.client.abandoned) == 1 and not server.client.live)


def test_all_prompts_of_a_request_end_with_its_client(server: Running) -> None:
    server.call(server.client.gate.clear)
    for stream, after in ((True, b"200 OK"), (False, None)):
        server.client.abandoned.clear()
        leave(server, "/v1/completions", {"prompt": ["a", "b", "c"], "stream": stream}, after=after)
        server.until(lambda: len(server.client.abandoned) == 3 and not server.client.live)


def test_a_client_that_reads_nothing_is_let_go(make_fake: Make, serve: Serve) -> None:
    """Its answer waits in no memory of ours: the source stands still once the socket is full."""
    server = serve(make_fake(lambda request, index: "a" * 1900), stalled_client_s=0.2)
    host, port = server.url.removeprefix("http://").split(":")
    body = {"prompt": ["x"] * 64, "n": 4, "max_tokens": 1900, "stream": True, "logprobs": 5}
    data = json.dumps(body).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        server.until(lambda: len(server.client.seen) == 64 and not server.client.live)
    assert len(server.client.abandoned) == 64


def test_many_prompts_come_each_with_its_number(server: Running) -> None:
    server.client.script = lambda request, index: f"{request.prompt}{index}" * 3
    body = {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 50}
    whole = server.post("/v1/completions", body).json()["choices"]
    assert [choice["index"] for choice in whole] == list(range(6))
    assert [c["text"] for c in whole] == [
        "a0" * 3,
        "a1" * 3,
        "b0" * 3,
        "b1" * 3,
        "c0" * 3,
        "c1" * 3,
    ]
    lines = events_of(server.post("/v1/completions", {**body, "stream": True}))
    texts = [""] * 6
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("counted", [False, True])
def test_what_it_cost_is_said_once_at_the_end(server: Running, path: str, counted: bool) -> None:
    body = {**GENERATING[path], "n": 2, "stream": True, "max_tokens": 5}
    if counted:
        body["stream_options"] = {"include_usage": True}
    chunks = [json.loads(line) for line in events_of(server.post(path, body))[:-1]]
    *others, last = chunks
    assert last["usage"]["completion_tokens"] == 10
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert last["timings"]["predicted_n"] == 10
    if counted:
        assert last["choices"] == [] and all(chunk["usage"] is None for chunk in others)
    else:
        assert last["choices"][0]["finish_reason"] == "length"
        assert not any("usage" in chunk for chunk in others)


def test_events_are_not_buffered_on_their_way(server: Running) -> None:
    body = {"prompt": "hi", "stream": True}
    response: httpx.Response = server.post("/v1/completions", body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
