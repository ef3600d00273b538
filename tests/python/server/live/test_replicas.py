"""Several engines behind one server: the records say whose they are, and a viewer chooses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid import AsyncLLM
from pellucid.engine.client import LocalClient, Teller
from tests.python.engine.conftest import DEFAULTS
from tests.python.server.running import Running


class Two:
    """Two engines as one client: requests go to the second, and no name means the first."""

    replicas: tuple[str, ...] = ("east", "west")
    shown = "east"

    def __init__(self, first: LocalClient, second: LocalClient) -> None:
        self._of = {"east": first, "west": second}

    def replica(self, name: str) -> Teller:
        return self._of[name]

    def __getattr__(self, name: str) -> Any:
        tells = name in ("records", "news", "about", "page_map", "stats")
        return getattr(self._of["east" if tells else "west"], name)


@pytest.fixture(scope="module")
def two(tiny_path: Path) -> Iterator[Running]:
    llms = [AsyncLLM(tiny_path, **DEFAULTS) for _ in range(2)]
    running = Running(Two(*map(LocalClient, llms)))
    yield running
    running.close()
    for llm in llms:
        llm.close()


def ask(server: Running, path: str, replica: str | None = None) -> Any:
    params = {} if replica is None else {"replica": replica}
    return server.http.get(f"/live/{path}", params=params).raise_for_status().json()


def test_each_replica_tells_of_itself(two: Running) -> None:
    body = {"prompt": [5] * 20, "max_tokens": 9, "ignore_eos": True, "request_id": "mine"}
    two.post("/v1/completions", body).raise_for_status()
    while not any(one["finished"] for one in ask(two, "records", "west")["requests"]):
        pass
    about = {name: ask(two, "about", name) for name in ("east", "west", None)}
    assert [about[name]["replicas"] for name in ("east", "west", None)] == [
        {"names": ["east", "west"], "shown": shown} for shown in ("east", "west", "east")
    ]
    assert about["east"]["engine"] == about[None]["engine"] != about["west"]["engine"]
    for _ in range(2):  # whoever looked first took nothing from whoever looks next
        east, west = (ask(two, "records", name) for name in ("east", "west"))
        assert east["steps"] == [] == east["requests"]
        [request] = west["requests"]
        assert request["output_tokens"] == 9
    while ask(two, "records", "west")["requests"][0]["sent"] is None:
        ask(two, "records")
    assert ask(two, "pages", "west")["engine"] == about["west"]["engine"]
    assert ask(two, "prefix", "east")["nodes"] == []
    assert ask(two, "recording", "west")["records"]["engine"] == about["west"]["engine"]


def test_a_replica_that_is_not_there_is_named(two: Running) -> None:
    for path in ("about", "records", "feed", "pages"):
        refused = two.http.get(f"/live/{path}", params={"replica": "north"})
        assert refused.status_code == 404, path
        assert refused.json()["error"]["param"] == "replica"
        assert "east, west" in refused.json()["error"]["message"]


def test_one_that_ends_takes_its_viewers_leave(two: Running) -> None:
    with two.http.stream("GET", "/live/feed", params={"replica": "west"}) as feed:
        lines = feed.iter_lines()
        assert next(lines) == "event: records"
        two.client.replicas = ("east",)
        assert two.http.get("/live/about", params={"replica": "west"}).status_code == 404
        two.client.replicas = ("east", "west")
        for _ in lines:  # it ends
            pass


def test_one_engine_has_no_replicas(tiny_path: Path) -> None:
    llm = AsyncLLM(tiny_path, **DEFAULTS)
    running = Running(LocalClient(llm))
    try:
        assert ask(running, "about")["replicas"] is None
        refused = running.http.get("/live/about", params={"replica": "east"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "replica")
    finally:
        running.close()
        llm.close()
