"""One envelope, on every route and status, inside streams too."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pellucid.core.errors import BadInput, PellucidError
from pellucid.engine.lanes import WIDTHS
from pellucid.server.settings import RequestLimits
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running, events_of

Make = Callable[..., FakeClient]
Serve = Callable[..., Running]

GENERATING = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50},
}


def envelope(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = response.json()
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert set(body) == {"error"} or (body["type"], len(body)) == ("error", 2)
    return error


def test_an_unknown_route_and_an_unknown_method(server: Running) -> None:
    assert envelope(server.http.get("/v1/nothing"), 404)["code"] == "not_found"
    assert envelope(server.http.get("/v1/completions"), 405)["code"] == "method_not_allowed"
    assert envelope(server.http.delete("/health"), 405)["code"] == "method_not_allowed"
    assert envelope(server.http.get("/v1/messages"), 405)["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", [*GENERATING, "/v1/embeddings", "/tokenize", "/detokenize"])
def test_an_unknown_model(server: Running, path: str) -> None:
    bodies = {"/v1/embeddings": {"input": "x"}, "/tokenize": {"prompt": "x"}}
    body = GENERATING.get(path) or bodies.get(path) or {"tokens": [1]}
    error = envelope(server.post(path, {**body, "model": "gpt-9"}), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert server.post(path, {**body, "model": "alias"}).status_code == 200


def test_a_body_above_the_limit_is_refused_however_it_comes(make_fake: Make, serve: Serve) -> None:
    server = serve(make_fake(), RequestLimits(body_bytes=1000))
    big = json.dumps({"prompt": "x" * 2000}).encode()
    assert envelope(server.http.post("/v1/completions", content=big), 413)

    def chunks() -> Any:
        yield from (big[i : i + 100] for i in range(0, len(big), 100))

    error = envelope(server.http.post("/v1/completions", content=chunks()), 413)
    assert error["code"] == "request_too_large" and "1000" in error["message"]


@pytest.mark.parametrize("path", GENERATING)
def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(
    server: Running, path: str
) -> None:
    long = "lorem " * 500
    body = json.loads(json.dumps(GENERATING[path]).replace('"hi"', json.dumps(long)))
    for stream in (False, True):
        error = envelope(server.post(path, {**body, "stream": stream}), 400)
        assert error["code"] == "context_length_exceeded"
        numbers = [int(word) for word in error["message"].split() if word.isdigit()]
        assert 2000 in numbers and max(numbers) >= 3000


@pytest.mark.parametrize("path", GENERATING)
def test_a_prompt_that_surely_does_not_fit_is_refused_uncounted(server: Running, path: str) -> None:
    """However long: its bytes over the longest token's are a bound, and are said as one."""
    long = "lorem " * 100_000
    body = json.loads(json.dumps(GENERATING[path]).replace('"hi"', json.dumps(long)))
    error = envelope(server.post(path, body), 400)
    assert error["code"] == "context_length_exceeded"
    found = re.search(r"holds 2000 tokens and the prompt has at least (\d+)", error["message"])
    assert found is not None
    assert 2000 <= int(found[1]) <= 600_000


def test_short_texts_are_tokenised_beside_long_ones(server: Running) -> None:
    end = threading.Event()
    lanes = server.client.lanes
    long = [server.call(asyncio.ensure_future, lanes.run(WIDTHS[-1] + 1, end.wait)) for _ in "123"]
    try:
        ids = server.post("/tokenize", {"prompt": "hello"}).json()["tokens"]
        assert server.post("/detokenize", {"tokens": ids}).json()["prompt"] == "hello"
        said = {"messages": [{"role": "user", "content": "hello"}]}
        assert server.post("/tokenize", said).json()["count"] > len(ids)
        assert server.post("/tokenize/pieces", {"prompt": "hello"}).status_code == 200
        asked = {"prompt": "hello", "echo": True, "logprobs": 1, "max_tokens": 1}
        assert server.post("/v1/completions", asked).status_code == 200
        assert not any(one.done() for one in long)
    finally:
        end.set()
    server.until(lambda: all(one.done() for one in long))


@pytest.mark.parametrize("path", GENERATING)
def test_trouble_with_a_stream_is_said_in_it_and_ends_it(server: Running, path: str) -> None:
    server.client.script = lambda request, index: "a" * 40
    server.call(server.client.gate.clear)
    with server.http.stream("POST", path, json={**GENERATING[path], "stream": True}) as response:
        assert response.status_code == 200
        server.client.breaks_with = PellucidError("the cat sat on it")
        server.call(server.client.gate.set)
        response.read()
    lines = events_of(response)
    anthropic = path == "/v1/messages"
    if not anthropic:
        assert lines.pop() == "[DONE]"
    error = json.loads(lines[-1])["error"]
    assert (error["message"], error["type"]) == (
        "the cat sat on it",
        "api_error" if anthropic else "server_error",
    )
    server.until(lambda: not server.client.live)


@pytest.mark.parametrize("path", GENERATING)
def test_the_same_trouble_without_a_stream_is_a_status(server: Running, path: str) -> None:
    server.client.breaks_with = PellucidError("the cat sat on it")
    assert envelope(server.post(path, GENERATING[path]), 500)["message"] == "the cat sat on it"
    server.client.breaks_with = BadInput("logit_bias leaves nothing")
    assert envelope(server.post(path, GENERATING[path]), 400)["param"] == "logit_bias"


@pytest.mark.parametrize("path", GENERATING)
def test_without_an_engine_everything_is_503(server: Running, path: str) -> None:
    server.client.failure = PellucidError("the engine is gone")
    for stream in (False, True):
        response = server.post(path, {**GENERATING[path], "stream": stream})
        error = envelope(response, 503)
        assert "the engine is gone" in error["message"]
        assert int(response.headers["retry-after"]) > 0
    assert envelope(server.http.get("/health"), 503)
    server.client.failure = None
    assert server.http.get("/health").json() == {"status": "ok"}


def test_a_fault_of_ours_tells_nothing_of_the_inside(server: Running) -> None:
    def script(request: Any, index: int) -> str:
        raise ZeroDivisionError("secret")

    server.client.script = script
    error = envelope(server.post("/v1/completions", {"prompt": "hi"}), 500)
    assert error["code"] == "internal_error" and "secret" not in error["message"]


LIMITS = RequestLimits(
    n=2, choices=3, prompts=4, logprobs=3, stop_strings=2, stop_length=5, bias_entries=2,
    stop_token_ids=1, schema_bytes=200, schema_depth=4,
)  # fmt: skip
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(9):
    DEEP = {"properties": {"a": DEEP}}


@pytest.fixture(scope="module")
def limited(tiny_path: Path) -> Iterator[Running]:
    running = Running(FakeClient(tiny_path), LIMITS)
    yield running
    running.close()


@pytest.mark.parametrize(
    ("change", "param", "number"),
    [
        ({"n": 3}, "n", 2),
        ({"n": 2, "prompt": ["a", "b"]}, "n", 3),
        ({"prompt": list("abcde")}, "prompt", 4),
        ({"logprobs": 4}, "logprobs", 3),
        ({"stop": ["a", "b", "c"]}, "stop", 2),
        ({"stop": ["a", "abcdef"]}, "stop[1]", 5),
        ({"logit_bias": {"1": 1, "2": 1, "3": 1}}, "logit_bias", 2),
        ({"stop_token_ids": [1, 2]}, "stop_token_ids", 1),
        ({"structured_outputs": {"json": {"title": "x" * 300}}}, "structured_outputs.json", 200),
        ({"structured_outputs": {"json": DEEP}}, "structured_outputs.json", 4),
        ({"structured_outputs": {"grammar": "x" * 300}}, "structured_outputs.grammar", 200),
    ],
)
def test_each_limit_says_itself(
    limited: Running, change: dict[str, Any], param: str, number: int
) -> None:
    error = envelope(limited.post("/v1/completions", {"prompt": "hi", **change}), 400)
    assert error["param"] == param
    assert str(number) in error["message"]


def test_a_request_id_is_kept_and_said(server: Running) -> None:
    body = {"prompt": "hi"}
    response = server.post("/v1/completions", body, headers={"X-Request-Id": "mine-1"})
    assert response.headers["X-Request-Id"] == "mine-1"
    assert response.json()["id"] == "cmpl-mine-1"
    twin = server.post("/v1/completions", {**body, "request_id": "body-2"})
    assert twin.json()["id"] == "cmpl-body-2"
    odd = server.post("/v1/completions", body, headers={"X-Request-Id": "a b<script>"})
    assert odd.headers["X-Request-Id"] != "a b<script>"


def test_what_a_body_without_the_name_of_a_field_says() -> None:
    from pellucid.server.errors import api_error_of

    assert api_error_of(BadInput("something is odd")).param is None
