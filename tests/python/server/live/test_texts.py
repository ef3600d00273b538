"""The tokens of a request: whose they are, the chances they had, and how they were chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid import AsyncLLM
from pellucid.engine.client import LocalClient
from pellucid.engine.process.client import ProcessClient
from pellucid.server.live import texts
from tests.python.engine.conftest import DEFAULTS
from tests.python.server.running import Running

PROMPT = [5, 9, 2, 2, 7] * 5
SAMPLING = {"temperature": 0.9, "top_k": 30, "top_p": 0.95, "seed": 11, "repetition_penalty": 1.2}
MINE = {"X-Pellucid-Viewer": "a secret of mine"}


@pytest.fixture(scope="module", params=["here", "elsewhere"])
def live(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Running]:
    arguments = {**DEFAULTS, "max_num_batched_tokens": 32}
    if request.param == "here":
        llm = AsyncLLM(tiny_path, **arguments)
        running = Running(LocalClient(llm))
        yield running
        running.close()
        llm.close()
    else:
        running = Running(start=lambda: ProcessClient.start(tiny_path, **arguments))
        yield running
        running.close()


def ask(server: Running, name: str, **extra: Any) -> dict[str, Any]:
    """A response, its request being known as `name` and the server's number."""
    body = {
        "prompt": PROMPT, "max_tokens": 12, "ignore_eos": True, "logprobs": 3,
        "return_token_ids": True, "request_id": name, **SAMPLING, **extra,
    }  # fmt: skip
    answer = server.post("/v1/completions", body, headers=MINE)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def known_as(server: Running, name: str) -> str:
    while True:
        for request in server.http.get("/live/records").json()["requests"]:
            if request["id"].startswith(f"{name}.") and request["finished"]:
                return str(request["id"])


def test_tokens_have_the_chances_that_the_response_said(live: Running) -> None:
    choice = ask(live, "chances")["choices"][0]
    name = known_as(live, "chances")
    found = live.http.get(f"/live/requests/{name}", headers=MINE).json()
    assert [piece["id"] for piece in found["prompt"]] == PROMPT
    tokens = found["tokens"]
    assert [token["id"] for token in tokens] == choice["token_ids"]
    assert [token["logprob"] for token in tokens] == choice["logprobs"]["token_logprobs"]
    assert [token["index"] for token in tokens] == list(range(12))
    assert tokens[0]["ms_since_last"] is None
    assert all(token["ms_since_last"] >= 0 for token in tokens[1:])
    for token in tokens:
        shares = [share for _, _, share in token["top"]]
        assert shares == sorted(shares, reverse=True) and len(shares) == 5
    first, last = found["request"]["steps"]
    steps = [token["step"] for token in tokens]
    assert steps == list(range(last - 11, last + 1)) and first < last


def test_texts_without_chances_cost_the_engine_nothing(
    live: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(live, "plain")
    name = known_as(live, "plain")
    whole = live.http.get(f"/live/requests/{name}", headers=MINE).json()
    monkeypatch.setattr(texts, "_chances", None)  # what asks the engine
    plain = live.http.get(f"/live/requests/{name}?chances=0", headers=MINE).json()
    assert plain["prompt"] == whole["prompt"]
    for token, other in zip(plain["tokens"], whole["tokens"], strict=True):
        assert token == {**other, "logprob": None, "rank": None, "top": []}
    wrong = live.http.get(f"/live/requests/{name}?chances=yes", headers=MINE)
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "chances"


def test_a_funnel_draws_what_was_drawn(live: Running) -> None:
    choices = ask(live, "funnel", n=2)["choices"]
    name = known_as(live, "funnel")
    for number, choice in enumerate(choices):
        for index in 0, 5, 11:
            asked = {"request": name, "index": index, "answer": number}
            found = live.post("/live/funnel", asked, headers=MINE).json()
            assert found["drawn"] == found["chosen"] == choice["token_ids"][index]
            names = [stage["name"] for stage in found["stages"]]
            assert names == [
                "logits",
                "penalties",
                "temperature",
                "min_p",
                "top_k",
                "top_p",
                "draw",
            ]
            assert found["stages"][4]["left"] <= 30
    plain = {"temperature": 0, "repetition_penalty": 1}
    greedy = {"request": name, "index": 3, "sampling": plain}
    found = live.post("/live/funnel", greedy, headers=MINE).json()
    assert found["drawn"] == found["stages"][0]["top"][0][0]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"index": 99}, "index"),
        ({"answer": 4}, "answer"),
        ({"sampling": {"temperature": -1}}, "sampling"),
        ({"sampling": {"heat": 1}}, "sampling.heat"),
        ({"index": -1}, "index"),
    ],
)
def test_what_cannot_be_asked_is_named(live: Running, change: Any, param: str) -> None:
    ask(live, "wrong")
    asked = {"request": known_as(live, "wrong"), "index": 0, **change}
    answer = live.post("/live/funnel", asked, headers=MINE)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_texts_are_their_askers(live: Running) -> None:
    ask(live, "private")
    name = known_as(live, "private")
    for headers in {}, {"X-Pellucid-Viewer": "another"}:
        for answer in (
            live.http.get(f"/live/requests/{name}", headers=headers),
            live.post("/live/funnel", {"request": name, "index": 0}, headers=headers),
        ):
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "not_yours"
            assert "--show-prompts" in answer.json()["error"]["message"]
    assert live.http.get("/live/requests/nobody.7", headers=MINE).status_code == 404


def test_another_key_is_another_asker_and_prompts_may_be_shown(
    serve: Callable[..., Running], tiny_path: Path
) -> None:
    for shown in False, True:
        with_keys = {"api_keys": ("one", "two"), "show_prompts": shown}
        llm = AsyncLLM(tiny_path, **DEFAULTS)
        server = serve(LocalClient(llm), **with_keys)
        server.http.headers["Authorization"] = "Bearer one"
        ask(server, "keyed")
        name = known_as(server, "keyed")
        assert server.http.get(f"/live/requests/{name}", headers=MINE).status_code == 200
        server.http.headers["Authorization"] = "Bearer two"
        answer = server.http.get(f"/live/requests/{name}", headers=MINE)
        assert answer.status_code == (200 if shown else 403)
        steps = server.http.get("/live/records").json()["steps"]
        ids = [token["id"] for step in steps for token in step["tokens"]]
        assert len(ids) == 12 and all((known is not None) is shown for known in ids)
        node = server.http.get("/live/prefix").json()["nodes"][0]
        assert (node["text"] is not None) is shown
        llm.close()
