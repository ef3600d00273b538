"""Replicas that cannot start: what keeps them from it is said, and the others serve on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.cluster.long.test_serve import Served, model, served, waiting
from tests.cluster.nodes import PATIENCE_S, processes_named, tree

__all__ = ["model"]

BODY = {"prompt": "go on", "temperature": 0, "max_tokens": 20, "ignore_eos": True}


def test_broken(model: Path, tmp_path: Path) -> None:
    with served(model, tmp_path, "--replicas", "2", "--threads", "1") as server:
        before = health(server)
        assert answered_by(server) in {one["name"] for one in before["replicas"]["each"]}
        whole = model.read_bytes()
        an_update_to_no_file_touches_nothing(server, model, before)
        an_update_that_cannot_be_loaded_is_taken_back(server, model, whole, before)
        one_that_cannot_start_is_said_to(server, model, whole)
        family = tree(server.process.pid)
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        assert server.process.wait(PATIENCE_S) == 0, server.log.read_text()
        assert not [pid for pid in family if Path(f"/proc/{pid}").exists()], "something is left"
        assert "Traceback" not in server.log.read_text()


def health(server: Served) -> Any:
    return server.http.get("/health").json()


def answered_by(server: Served) -> str:
    answer = server.http.post("/v1/completions", json=BODY)
    assert answer.status_code == 200, answer.text
    return answer.headers["X-Pellucid-Replica"]


def errors(server: Served) -> list[str]:
    return [line["message"] for line in server.lines() if line["level"] == "error"]


def an_update_to_no_file_touches_nothing(server: Served, model: Path, before: Any) -> None:
    model.rename(model.with_suffix(".away"))
    update(server, "cannot be opened")
    assert [one["name"] for one in health(server)["replicas"]["each"]] == [
        one["name"] for one in before["replicas"]["each"]
    ]


def an_update_that_cannot_be_loaded_is_taken_back(
    server: Served, model: Path, whole: bytes, before: Any
) -> None:
    """One of them has gone when that is known: it comes back as soon as it can."""
    model.write_bytes(whole.replace(b"llama", b"lIama"))  # no family that there is
    update(server, "lIama")
    left = answered_by(server)
    assert left in {one["name"] for one in before["replicas"]["each"]}
    model.write_bytes(whole)
    server.until("/health", lambda found: found.json()["status"] == "ok")
    assert left in {one["name"] for one in health(server)["replicas"]["each"]}


def update(server: Served, why: str) -> None:
    told = len(errors(server))
    server.process.send_signal(signal.SIGHUP)
    for _ in waiting(server.log.read_text):
        answered_by(server)
        if any("not replaced" in line for line in errors(server)[told:]):
            break
    [line] = [line for line in errors(server)[told:] if "not replaced" in line]
    assert why in line


def one_that_cannot_start_is_said_to(server: Served, model: Path, whole: bytes) -> None:
    model.unlink()
    told = len(errors(server))
    os.kill(processes_named("ServeReplica", server.process.pid)[0], signal.SIGKILL)
    server.until("/health", lambda found: "no such file" in found.text)
    found = health(server)
    assert found["status"] == "degraded"
    assert found["replicas"]["ready"] == 1
    answered_by(server)
    missing = [line for line in errors(server)[told:] if "no such file" in line]
    assert len(missing) == 1, "each reason is said once"
    model.write_bytes(whole)
    server.until("/health", lambda found: found.json()["status"] == "ok")
    model.unlink()  # and it ends while one tries to start
    os.kill(processes_named("ServeReplica", server.process.pid)[0], signal.SIGKILL)
    server.until("/health", lambda found: "no such file" in found.text)
