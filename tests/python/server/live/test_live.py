"""What a server tells of its engine: the same whether that is in its process or in another."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid import AsyncLLM
from pellucid.engine.client import LocalClient
from pellucid.engine.process.client import ProcessClient
from pellucid.server.live.hub import Hub
from tests.python.engine.conftest import DEFAULTS
from tests.python.server.running import Running

TIMES = "received", "queued", "started", "first_token", "last_token", "finished", "sent"


def ask(server: Running, name: str) -> dict[str, Any]:
    """The usage of an answer of 9 tokens."""
    body = {"prompt": [5] * 20, "max_tokens": 9, "ignore_eos": True, "request_id": name}
    usage: dict[str, Any] = server.post("/v1/completions", body).raise_for_status().json()["usage"]
    return usage


def named(request: dict[str, Any], name: str) -> bool:
    return bool(request["id"].startswith(f"{name}."))


@pytest.fixture(scope="module", params=["here", "elsewhere"])
def live(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Running]:
    if request.param == "here":
        llm = AsyncLLM(tiny_path, **DEFAULTS)
        running = Running(LocalClient(llm))
        yield running
        running.close()
        llm.close()
    else:
        running = Running(start=lambda: ProcessClient.start(tiny_path, **DEFAULTS))
        yield running
        running.close()


def records(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/live/records").raise_for_status().json()
    return found


def settled(server: Running, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records once request `name` has its end in them, and the request."""
    while True:
        found = records(server)
        for request in found["requests"]:
            last = found["steps"][-1]["id"] if found["steps"] else -1
            if named(request, name) and request["finished"] and request["steps"][1] <= last:
                return found, request


def feed(server: Running, query: str = "") -> Iterator[dict[str, Any]]:
    with server.http.stream("GET", f"/live/feed{query}") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        for line in lines:
            if line == "event: records":
                yield json.loads(next(lines).removeprefix("data: "))


def test_steps_and_requests_are_what_ran(live: Running) -> None:
    usage = ask(live, "mine")
    found, request = settled(live, "mine")
    assert request["state"] == "finished" and request["finish_reason"] == "length"
    assert request["prompt_tokens"] == usage["prompt_tokens"]
    assert request["output_tokens"] == usage["completion_tokens"]
    first, last = request["steps"]
    steps = [step for step in found["steps"] if first <= step["id"] <= last]
    mine = [part for step in steps for part in step["batch"] if part["request"] == request["id"]]
    assert [part["kind"] for part in mine] == ["prefill", *["decode"] * 8]
    assert [part["context"] for part in mine] == list(range(20, 29))
    assert sum(part["tokens"] for part in mine) == 28
    tokens = [token for step in steps for token in step["tokens"]]
    assert len(tokens) == usage["completion_tokens"]
    assert {token["request"] for token in tokens} == {request["id"]}
    assert all(token["sequence"] in request["sequences"] for token in tokens)
    for step in steps:
        ms = dict(step["ms"])
        wall = ms.pop("wall")
        assert sum(ms.values()) == pytest.approx(wall, abs=0.01)
        pages = step["pages"]
        total = pages["free"] + pages["cached"] + pages["owned"]
        assert total == live.http.get("/live/about").json()["cache"]["n_pages"]
        assert step["cost"]["kv_written"] > 0
        assert not [check for check in step["checks"] if "page" in check]
    assert found["stats"]["running_sequences"] == 0


def test_the_feed_goes_on_where_its_first_message_ends(live: Running) -> None:
    ask(live, "known")
    known, _ = settled(live, "known")
    messages = feed(live)
    first = next(messages)
    assert first["steps"] == known["steps"] and first["engine"] == known["engine"]
    ask(live, "news")
    seen: list[dict[str, Any]] = []
    steps = list(first["steps"])
    while not seen or seen[-1]["state"] != "finished":
        message = next(messages)
        steps += message["steps"]
        seen += [request for request in message["requests"] if named(request, "news")]
    assert [step["id"] for step in steps] == list(range(steps[0]["id"], len(steps)))
    assert message["dropped"] == 0
    messages.close()  # type: ignore[attr-defined]


def test_spans_are_timed_while_somebody_asks_for_them(live: Running) -> None:
    messages = feed(live, "?spans=1")
    next(messages)
    steps: dict[int, dict[str, Any]] = {}
    spans: list[dict[str, Any]] = []
    for number in itertools.count():
        ask(live, f"spans{number}")
        ended = False
        while not ended:
            message = next(messages)
            steps |= {step["id"]: step for step in message["steps"]}
            spans += message["spans"]
            mine = [one for one in message["requests"] if named(one, f"spans{number}")]
            ended = any(one["sent"] for one in mine)
        if spans:  # whether a step began after the first look was chance
            break
    messages.close()  # type: ignore[attr-defined]
    for step in {span["step"] for span in spans}:
        mine = [span for span in spans if span["step"] == step]
        whole = steps[step]
        assert sum(span["ms"] for span in mine) <= whole["ms"]["forward"] + 0.01 * len(mine)
        assert [span["start"] for span in mine] == sorted(span["start"] for span in mine)
        cost = whole["cost"]
        moved = cost["weights_read"] + cost["kv_read"] + cost["kv_written"]
        assert sum(span["bytes"] for span in mine) == moved
        assert sum(span["operations"] for span in mine) >= cost["operations"]
    assert {span["layer"] for span in spans} == {None, 0, 1}
    assert {"store+attention", "norm", "ffn_down", "output"} <= {span["op"] for span in spans}
    assert live.http.get("/live/feed?spans=yes").json()["error"]["param"] == "spans"


def test_the_engine_says_what_it_is(live: Running) -> None:
    about = live.http.get("/live/about").json()
    model = about["model"]
    assert (model["name"], model["family"], model["layers"]) == ("tiny", "llama", 2)
    per_token = sum(
        part["kv_heads"] * (part["key_size"] + part["value_size"]) * part["element_bytes"]
        for part in model["kv_parts"]
    )
    assert model["kv_bytes_per_token"] == per_token
    cache = about["cache"]
    assert cache["bytes_per_page"] == per_token * cache["page_size"]
    assert cache["bytes_per_token"][cache["dtype"]] == per_token
    assert cache["n_pages"] * cache["bytes_per_page"] <= 1 << 20
    names = {tensor["name"]: tensor for tensor in about["tensors"]}
    assert all(tensor["load_ms"] >= 0 for tensor in about["tensors"])
    assert names["blk.1.attn_q.weight"]["shape"] == [32, 32]
    assert about["process"]["rss_bytes"] > 1 << 20
    assert about["engine"] == records(live)["engine"]
    assert about["shows_prompts"] is False


def test_a_request_is_told_from_the_socket_to_the_last_byte(live: Running) -> None:
    before = time.monotonic()
    ask(live, "journey")
    _, request = settled(live, "journey")
    while request["sent"] is None:  # the last byte leaves after the last token
        _, request = settled(live, "journey")
    times = [before, *(request[name] for name in TIMES)]
    assert times == sorted(times)
    assert request["tokenize_ms"] > 0 and request["detokenize_ms"] > 0


def test_the_map_of_pages_is_what_the_steps_made(live: Running) -> None:
    ask(live, "pages")
    found, request = settled(live, "pages")
    tree = live.http.get("/live/prefix").json()
    pages = live.http.get("/live/pages").json()
    assert pages["engine"] == tree["engine"] == found["engine"]
    assert pages["step"] == found["steps"][-1]["id"] + 1
    assert pages["sequences"] == [] and pages["checks"] == []
    cached: set[int] = set()
    for step in found["steps"]:
        cached |= set(step["pages"]["cached_now"])
        cached -= set(step["pages"]["evicted"])
    assert cached <= set(pages["cached"]) == set(pages["idle"])
    nodes = {node["page"]: node for node in tree["nodes"]}
    assert nodes.keys() == set(pages["cached"])
    assert tree["next_victim"] == pages["idle"][0]
    assert all(node["text"] is None for node in nodes.values())
    assert request["cached_tokens"] <= 16 * sum(node["hits"] for node in nodes.values())


def test_nobody_looks_once_everybody_has_left(live: Running) -> None:
    hub: Hub = live.app.state.hub
    messages = feed(live)
    next(messages)
    assert hub.looking
    messages.close()  # type: ignore[attr-defined]
    live.until(lambda: not hub.looking)


def test_a_key_guards_them(serve: Callable[..., Running], make_fake: Callable[..., Any]) -> None:
    server = serve(make_fake(), api_keys=("secret",))
    for path in "about", "records", "feed", "pages", "prefix":
        assert server.http.get(f"/live/{path}").status_code == 401


def test_a_shutdown_ends_the_feeds(live: Running) -> None:
    messages = feed(live)
    next(messages)
    live.call(live.app.state.hub.close)
    assert list(messages) == []


def test_without_an_engine_they_say_so(
    serve: Callable[..., Running], make_fake: Callable[..., Any]
) -> None:
    server = serve(make_fake())
    for path in "about", "records", "pages", "prefix":
        answer = server.http.get(f"/live/{path}")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_unavailable"
