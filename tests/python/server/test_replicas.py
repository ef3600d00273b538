"""What a server with replicas says of them: who answers, how each one is, what all count."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pellucid.core.errors import Unavailable
from pellucid.distributed.report import Fleet, Report
from tests.python.server.fake import NO_STATS, FakeClient, FakeStream
from tests.python.server.running import Running

HEADER = "X-Pellucid-Replica"


class FakeReplicas(FakeClient):
    """Requests go to replicas "a" and "b" in turn; none is taken while `refuses` is set, and one is
    asked again of the other as it is read if `moves`."""

    refuses: Unavailable | None = None
    moves = False
    reports: tuple[Report, ...] = ()
    silent: tuple[str, ...] = ()
    trouble: str | None = None

    async def stream(self, *arguments: Any, **options: Any) -> FakeStream:
        found = await super().stream(*arguments, **options)
        stream: Any = found
        stream.replica = next(self._turns)

        async def taken() -> None:
            if self.refuses is not None:
                await stream.aclose()
                raise self.refuses
            if self.moves:
                stream.replica = next(self._turns)

        stream.taken = taken
        return found

    def reset(self, *script: Any) -> None:
        super().reset(*script)
        self._turns: Iterator[str] = itertools.cycle("ab")

    async def fleet(self) -> Fleet:
        running = sum(report.stats.running_sequences for report in self.reports)
        total = replace(NO_STATS, running_sequences=running)
        return Fleet(2, 3, self.reports, total, self.silent, self.trouble)

    async def check_health(self) -> None:
        pass


@pytest.fixture
def replicas(serve: Callable[..., Running], tiny_path: Path) -> Running:
    return serve(FakeReplicas(tiny_path))


CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
ASKS = [
    ("/v1/completions", {"prompt": "abc", "max_tokens": 5}),
    ("/v1/chat/completions", CHAT),
    ("/v1/messages", CHAT),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 16}),
]


@pytest.mark.parametrize(("path", "body"), ASKS)
@pytest.mark.parametrize("stream", [False, True])
def test_each_response_names_its_replica(
    replicas: Running, path: str, body: dict[str, Any], stream: bool
) -> None:
    names = []
    for _ in range(3):
        answer = replicas.http.post(path, json={**body, "stream": stream})
        assert answer.status_code == 200, answer.text
        names.append(answer.headers[HEADER])
    assert names == ["a", "b", "a"]


def test_several_prompts_may_be_of_several(replicas: Running) -> None:
    body = {"prompt": ["one", "two", "three"], "max_tokens": 2}
    assert replicas.http.post("/v1/completions", json=body).headers[HEADER] == "a, b"


def test_one_that_was_asked_again_is_named_by_who_answered(replicas: Running) -> None:
    replicas.client.moves = True
    for stream in False, True:
        replicas.call(replicas.client.reset)
        body = {**CHAT, "stream": stream}
        assert replicas.http.post("/v1/chat/completions", json=body).headers[HEADER] == "b"


def test_without_replicas_none_is_named(server: Running) -> None:
    assert HEADER not in server.http.post("/v1/chat/completions", json=CHAT).headers
    assert server.http.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("stream", [False, True])
def test_what_no_replica_takes_is_refused_by_its_status(replicas: Running, stream: bool) -> None:
    replicas.client.refuses = Unavailable("no replica took the request in 1 s: ask again")
    for path, body in ASKS:
        answer = replicas.http.post(path, json={**body, "stream": stream})
        assert answer.status_code == 503
        assert "no replica took the request" in answer.text
    replicas.until(lambda: not replicas.client.live)
    assert replicas.call(lambda: replicas.app.state.guard._answers) == 0


def test_the_log_names_the_replica(
    tiny_path: Path, serve: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    logged = serve(FakeReplicas(tiny_path), access_log=True)
    with caplog.at_level(logging.INFO, "pellucid.access"):
        logged.http.post("/v1/chat/completions", json=CHAT)
        logged.http.get("/health")
        logged.until(lambda: len(_requests(caplog)) == 2)
    asked, health = _requests(caplog)
    assert asked.__dict__["replica"] == "a"
    assert "replica" not in health.__dict__


def _requests(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name == "pellucid.access"]


def test_health_says_how_each_is(replicas: Running) -> None:
    client = replicas.client
    client.reports = (_report("b", 3), _report("d", 1))
    found = replicas.http.get("/health").json()
    assert found["status"] == "ok"
    assert [one["state"] for one in found["replicas"].pop("each")] == ["ready", "ready"]
    assert found["replicas"] == {"ready": 2, "least": 2, "most": 3}
    client.reports, client.silent, client.trouble = client.reports[:1], ("a",), "no such file"
    found = replicas.http.get("/health").json()
    assert found["status"] == "degraded"
    assert found["replicas"]["missing_because"] == "no such file"
    first, second = found["replicas"]["each"]
    assert first == {"name": "a", "state": "silent"}
    assert second == {
        "name": "b", "state": "ready", "node": "node", "process_id": 7, "requests_running": 3,
        "requests_waiting": 0,
    }  # fmt: skip


def test_what_each_has_adds_up_to_what_all_have(replicas: Running) -> None:
    replicas.client.reports = (_report("a", 3), _report("b", 4))
    assert _metric(replicas, "pellucid_num_requests_running") == {"": 7}
    assert _metric(replicas, "pellucid_replica_requests_running") == {"a": 3, "b": 4}
    assert _metric(replicas, "pellucid_engine_up") == {"": 1}
    replicas.client.reports = ()
    assert _metric(replicas, "pellucid_engine_up") == {"": 0}
    assert _metric(replicas, "pellucid_num_requests_running") == {"": 0}
    assert _metric(replicas, "pellucid_replica_requests_running") == {}


def _report(name: str, running: int) -> Report:
    return Report(name, "node", 7, replace(NO_STATS, running_sequences=running))


def _metric(server: Running, name: str) -> dict[str, float]:
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    family = next((one for one in families if one.name == name), None)
    samples = [] if family is None else family.samples
    return {sample.labels.get("replica", ""): sample.value for sample in samples}
