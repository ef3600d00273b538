"""What may come in, how long it may stay, and that it goes out: over HTTP, on a scripted engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from pellucid.core.errors import Unavailable
from pellucid.server.guard import GuardLimits
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running, events_of

ASK = {"prompt": "a", "max_tokens": 5}


def hold(server: Running) -> None:
    server.call(server.client.gate.clear)


def release(server: Running) -> None:
    server.call(server.client.gate.set)


def asked(server: Running, pool: ThreadPoolExecutor, n: int) -> list[Future[httpx.Response]]:
    """`n` requests, all of them inside."""
    before = len(server.client.live)
    sent = [pool.submit(server.post, "/v1/completions", ASK) for _ in range(n)]
    server.until(lambda: len(server.client.live) == before + n)
    return sent


def value_of(server: Running, series: str) -> float:
    text = server.http.get("/metrics").text
    [found] = re.findall(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found)


@pytest.fixture
def narrow(make_fake: Callable[..., FakeClient], serve: Callable[..., Running]) -> Running:
    """Two answers run, one waits."""
    return serve(make_fake(), guard=GuardLimits(running=2, queued=1))


def test_one_more_than_may_wait_is_told_when_to_come_again(narrow: Running) -> None:
    hold(narrow)
    with ThreadPoolExecutor(3) as pool:
        inside = asked(narrow, pool, 3)
        refused = narrow.post("/v1/completions", ASK)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        error = refused.json()["error"]
        assert error["type"] == "rate_limit_error"
        assert error["code"] == "queue_full"
        assert "2 + 1" in error["message"]
        release(narrow)
        assert [future.result().status_code for future in inside] == [200] * 3
    assert narrow.post("/v1/completions", ASK).status_code == 200
    labels = 'engine="0",model_name="tiny",reason="queue_full"'
    assert value_of(narrow, f"pellucid_admission_rejections_total{{{labels}}}") == 1


def test_answers_count_not_requests(narrow: Running) -> None:
    hold(narrow)
    with ThreadPoolExecutor(1) as pool:
        inside = asked(narrow, pool, 1)
        assert narrow.post("/v1/completions", {**ASK, "n": 3}).status_code == 429
        release(narrow)
        inside[0].result()
    alone = narrow.post("/v1/completions", {**ASK, "n": 3})
    assert (alone.status_code, len(alone.json()["choices"])) == (200, 3)


LONE = {
    "n": ("/v1/completions", {**ASK, "n": 4}),
    "prompts": ("/v1/completions", {**ASK, "prompt": list("abcd")}),
    "both": ("/v1/completions", {**ASK, "prompt": list("ab"), "n": 3}),
    "echo": ("/v1/completions", {**ASK, "prompt": list("abc"), "echo": True, "logprobs": 1}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "n": 4}),
    "embeddings": ("/v1/embeddings", {"input": list("abcd")}),
}


@pytest.mark.parametrize("what", LONE)
@pytest.mark.parametrize("tokens", [0, 1])
def test_a_request_comes_in_whole_or_not_at_all(
    what: str, tokens: int, make_fake: Callable[..., FakeClient], serve: Callable[..., Running]
) -> None:
    """One with more answers than may run and wait would be told to come again for ever: when nobody
    else is there it comes in."""
    server = serve(make_fake(), guard=GuardLimits(running=1, queued=1, queued_tokens=tokens))
    path, body = LONE[what]
    hold(server)
    with ThreadPoolExecutor(1) as pool:
        inside = asked(server, pool, 1)
        assert server.post(path, body).status_code == 429
        assert (len(server.client.live), server.client.embedded) == (1, 0)
        release(server)
        assert inside[0].result().status_code == 200
    for _ in range(2):
        alone = server.post(path, body)
        assert alone.status_code == 200, alone.text
        assert len(alone.json().get("choices") or alone.json()["data"]) >= 3
    assert server.app.state.guard._answers == server.app.state.guard._tokens == 0


def test_what_is_refused_half_way_gives_all_its_room_back(narrow: Running) -> None:
    refused = narrow.post("/v1/completions", {**ASK, "prompt": ["a", "x" * 3000, "b"]})
    assert refused.json()["error"]["param"] == "prompt[1]"
    assert narrow.app.state.guard._answers == 0
    assert not narrow.client.live


def test_tokens_that_wait_are_bounded(
    make_fake: Callable[..., FakeClient], serve: Callable[..., Running]
) -> None:
    server = serve(make_fake(), guard=GuardLimits(queued_tokens=10))
    hold(server)
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(server.post, "/v1/completions", {**ASK, "prompt": "x" * 50})
        server.until(lambda: len(server.client.live) == 1)
        assert server.post("/v1/completions", ASK).status_code == 429
        release(server)
        assert long.result().status_code == 200


def test_refusals_stand_in_the_frame_of_their_api(narrow: Running) -> None:
    hold(narrow)
    with ThreadPoolExecutor(3) as pool:
        inside = asked(narrow, pool, 3)
        message = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5}
        refused = narrow.post("/v1/messages", message)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        release(narrow)
        for future in inside:
            future.result()


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long_is_ended(
    stream: bool, make_fake: Callable[..., FakeClient], serve: Callable[..., Running]
) -> None:
    server = serve(make_fake(), guard=GuardLimits(timeout_s=0.1))
    hold(server)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(server.post, "/v1/completions", {**ASK, "stream": stream})
        server.until(lambda: any(inside.aborted for inside in server.client.live.values()))
        release(server)
        answer = sent.result()
    if stream:
        events = events_of(answer)
        assert events[-1] == "[DONE]"
        error = json.loads(events[-2])["error"]
    else:
        assert answer.status_code == 504
        error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("timeout_error", "request_timeout")
    server.until(lambda: not server.client.live)
    assert server.app.state.guard._answers == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_made_ready_for_a_request_takes_of_its_time(
    path: str, stream: bool, make_fake: Callable[..., FakeClient], serve: Callable[..., Running]
) -> None:
    """Its text is tokenised, its schema compiled: neither may last longer than the request."""
    server = serve(make_fake(), guard=GuardLimits(timeout_s=0.1))
    server.call(server.client.door.clear)
    body = {**ASK, "messages": [{"role": "user", "content": "a"}], "stream": stream}
    body.pop("messages" if path == "/v1/completions" else "prompt")
    answer = server.post(path, body)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "request_timeout"
    assert server.app.state.guard._answers == 0


def test_the_grace_ends_what_is_made_ready_too(narrow: Running) -> None:
    narrow.call(narrow.client.door.clear)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(narrow.post, "/v1/completions", ASK)
        guard = narrow.app.state.guard
        narrow.until(lambda: guard._answers == 1)
        narrow.call(guard.end_all)
        assert sent.result().status_code == 503


def test_a_client_that_leaves_makes_room(narrow: Running) -> None:
    hold(narrow)
    with ThreadPoolExecutor(3) as pool:
        inside = asked(narrow, pool, 2)
        with narrow.http.stream("POST", "/v1/completions", json={**ASK, "stream": True}):
            narrow.until(lambda: len(narrow.client.live) == 3)
        narrow.until(lambda: len(narrow.client.live) == 2)
        inside += asked(narrow, pool, 1)
        release(narrow)
        assert [future.result().status_code for future in inside] == [200] * 3
    labels = 'engine="0",finished_reason="abort",model_name="tiny"'
    assert value_of(narrow, f"pellucid_request_success_total{{{labels}}}") == 1


def test_while_shutting_down_nothing_comes_in_and_what_is_inside_ends(narrow: Running) -> None:
    guard = narrow.app.state.guard
    hold(narrow)
    with ThreadPoolExecutor(1) as pool:
        inside = asked(narrow, pool, 1)
        narrow.call(guard.refuse_more)
        assert narrow.post("/v1/completions", ASK).status_code == 503
        health = narrow.http.get("/health")
        assert (health.status_code, health.headers["Retry-After"]) == (503, "5")
        narrow.call(guard.end_all)
        release(narrow)
        ended = inside[0].result()
    assert ended.status_code == 503
    assert "shutting down" in ended.json()["error"]["message"]


def test_an_embedding_ends_with_the_grace_too(narrow: Running) -> None:
    hold(narrow)
    with ThreadPoolExecutor(1) as pool:
        inside = pool.submit(narrow.post, "/v1/embeddings", {"input": "a"})
        narrow.until(lambda: narrow.client.embedded == 1)
        narrow.call(narrow.app.state.guard.end_all)
        ended = inside.result()
    assert ended.status_code == 503
    assert "shutting down" in ended.json()["error"]["message"]


def test_an_engine_that_ends_under_a_stream_is_said_in_it(narrow: Running) -> None:
    server = narrow
    hold(server)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(server.post, "/v1/completions", {**ASK, "stream": True})
        server.until(lambda: len(server.client.live) == 1)
        server.client.breaks_with = Unavailable("the engine process was ended by signal 9")
        release(server)
        events = events_of(sent.result())
    assert json.loads(events[-2])["error"]["code"] == "engine_unavailable"
    assert events[-1] == "[DONE]"
    server.client.breaks_with = None
    labels = 'engine="0",finished_reason="error",model_name="tiny"'
    assert value_of(server, f"pellucid_request_success_total{{{labels}}}") == 1
