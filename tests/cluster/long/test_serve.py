"""`pellucid serve --replicas 2` as a process: what it serves, on what it listens, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pellucid import LLM, SamplingParams
from tests.cluster.nodes import PATIENCE_S, processes_named, tree
from tests.python.engine.tiny import write_model

MEMORY = "1MiB"
PROMPT = "hello, said the hen to them all"  # more than a page


class Served:
    """`process`, a client for its server, and what it logs."""

    def __init__(self, process: subprocess.Popen[bytes], http: httpx.Client, log: Path) -> None:
        self.process = process
        self.http = http
        self.log = log

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def until(self, path: str, true: Any) -> Any:
        """What `path` gives once that is so."""
        for _ in waiting(self.log.read_text):
            found = self.http.get(path)
            if true(found):
                return found
            assert self.process.poll() is None, self.log.read_text()
        return None


def waiting(said: Callable[[], str]) -> Iterator[None]:
    """Again and again, for as long as anything may take; fails then."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        yield
        time.sleep(0.1)
    raise AssertionError(said())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny.gguf")


@contextmanager
def served(model: Path, folder: Path, *flags: str) -> Iterator[Served]:
    command = (sys.executable, "-m", "pellucid", "serve", str(model), "--port", "0", *flags)
    log, said = folder / "log", folder / "said"
    with log.open("wb") as err, said.open("wb") as out:
        process = subprocess.Popen(
            (*command, "--kv-cache-memory", MEMORY, "--no-access-log"),
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        for _ in waiting(log.read_text):
            assert process.poll() is None, log.read_text()
            listening = [line for line in log.read_text().splitlines() if '"listening"' in line]
            if listening:
                break
        url = json.loads(listening[0])["url"]
        with httpx.Client(base_url=url, timeout=120) as http:
            yield Served(process, http, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    assert said.read_bytes() == b"", "something is on standard output"


def test_served_by_replicas(model: Path, tmp_path: Path) -> None:
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 30, "ignore_eos": True}
    with LLM(model, kv_cache_memory_bytes=1 << 20) as llm:
        expected = llm.generate(PROMPT, params)[0].outputs[0].text
    with served(model, tmp_path, "--replicas", "2") as server:
        http = server.http
        health = http.get("/health").json()
        each = {one["name"]: one["state"] for one in health["replicas"].pop("each")}
        assert health == {"status": "ok", "replicas": {"ready": 2, "least": 2, "most": 2}}
        assert list(each.values()) == ["ready", "ready"]
        for _ in range(4):
            answer = http.post("/v1/completions", json=body).json()
            assert answer["choices"][0]["text"] == expected
        with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
            assert stream.headers["X-Pellucid-Replica"] in each
        metrics = http.get("/metrics").text
        assert 'pellucid_replicas{model_name="tiny"} 2.0' in metrics
        assert metrics.count("pellucid_replica_requests_running{") == 2
        assert 'why="prefix"} 4.0' in metrics
        assert http.get("/live/about").status_code == 200
        assert listening_elsewhere(server.process.pid) == []
        a_client_that_leaves_ends_its_request(server)
        an_update_loses_no_request(server, body, expected)
        family = tree(server.process.pid)
        assert len(family) > 5
        began = time.monotonic()
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        assert server.process.wait(PATIENCE_S) == 0, server.log.read_text()
        print(f"ended in {time.monotonic() - began:.1f} s")
        assert not [pid for pid in family if Path(f"/proc/{pid}").exists()], "something is left"


def a_client_that_leaves_ends_its_request(server: Served) -> None:
    body = {"prompt": "go on", "max_tokens": 90, "ignore_eos": True, "stream": True}
    for _ in range(5):
        with server.http.stream("POST", "/v1/completions", json=body) as stream:
            next(stream.iter_lines())
    server.until(
        "/metrics",
        lambda page: 'kv_cache_pages{engine="0",model_name="tiny",state="owned"} 0.0' in page.text,
    )


def an_update_loses_no_request(server: Served, body: dict[str, Any], expected: str) -> None:
    def replaced() -> bool:
        return any(line["message"] == "the replicas were replaced" for line in server.lines())

    server.process.send_signal(signal.SIGHUP)
    asked = 0
    for _ in waiting(server.log.read_text):
        if replaced():
            break
        answer = server.http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == expected
        asked += 1
    assert asked
    server.until("/health", lambda found: found.json()["status"] == "ok")


def test_replicas_follow_the_load(model: Path, tmp_path: Path) -> None:
    """A second one comes while there is much to do."""
    flags = ("--max-replicas", "2", "--backend", "reference", "--max-num-seqs", "2")
    body = {"prompt": "go on", "max_tokens": 90, "ignore_eos": True}
    with served(model, tmp_path, *flags) as server:
        assert server.http.get("/health").json()["replicas"]["ready"] == 1
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                server.http.post("/v1/completions", json=body)

        clients = [threading.Thread(target=ask) for _ in range(8)]
        for client in clients:
            client.start()
        try:
            server.until("/health", lambda found: found.json()["replicas"]["ready"] == 2)
        finally:
            over.set()
            for client in clients:
                client.join()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == 0


def test_what_cannot_start_says_why_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    flags = ("--replicas", "2", "--max-model-len", "5000")
    command = (sys.executable, "-m", "pellucid", "serve", str(model), "--port", "0", *flags)
    ended = subprocess.run(command, capture_output=True, check=False)
    lines = ended.stderr.decode().splitlines()
    assert ended.returncode == 2, ended.stderr
    assert lines[-1].startswith("error: max_model_len 5000 is above")
    assert "Traceback" not in ended.stderr.decode()


def test_served_in_stages(model: Path, tmp_path: Path) -> None:
    """Two processes have a part of the layers each; as one of them ends, so does what runs, and the
    engine comes back."""
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 30, "ignore_eos": True}
    with LLM(model, kv_cache_memory_bytes=1 << 20) as llm:
        expected = llm.generate(PROMPT, params)[0].outputs[0].text
    with served(model, tmp_path, "--pipeline-parallel-size", "2") as server:
        answer = server.http.post("/v1/completions", json=body).json()
        assert answer["choices"][0]["text"] == expected
        assert listening_elsewhere(server.process.pid) == []
        stages = processes_named("ray::StageActor", server.process.pid)
        assert len(stages) == 2
        os.kill(stages[0], signal.SIGKILL)
        ended = server.http.post("/v1/completions", json=body)
        if ended.status_code != 200:  # it had not begun again
            assert ended.status_code == 503, ended.text
            assert "again" in ended.json()["error"]["message"]
        server.until("/health", lambda found: found.status_code == 200)
        answer = server.http.post("/v1/completions", json=body).json()
        assert answer["choices"][0]["text"] == expected
        family = tree(server.process.pid)
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        assert server.process.wait(PATIENCE_S) == 0, server.log.read_text()
        assert not [pid for pid in family if Path(f"/proc/{pid}").exists()], "something is left"


def test_run_in_stages(model: Path) -> None:
    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "pellucid", "run", str(model), "the hen", "--raw")
        return subprocess.run(
            (*command, "--temperature", "0", "--max-tokens", "20", *flags),
            capture_output=True,
            text=True,
            check=False,
        )

    alone, staged = run(), run("--pipeline-parallel-size", "2")
    assert staged.returncode == 0, staged.stderr
    assert staged.stdout == alone.stdout
    for flags, words in (
        (("--pipeline-parallel-size", "40"), "stages must be from 1 to"),
        (("--pipeline-parallel-size", "0"), "stages must be 1 or more"),
        (("--pipeline-parallel-size", "2", "--quantization", "q8_0"), "leave it out"),
        (("--pipeline-parallel-size", "2", "--ray-address", "127.0.0.1:9"), "no Ray cluster"),
        (("--ray-address", "auto"), "--pipeline-parallel-size: add it"),
    ):
        refused = run(*flags)
        assert refused.returncode == 2, refused.stderr
        assert words in refused.stderr.splitlines()[-1]
        assert "Traceback" not in refused.stderr


def listening_elsewhere(root: int) -> list[str]:
    """Addresses beyond this machine that a process of the tree listens on."""
    sockets = set()
    for pid in tree(root):
        folder = Path(f"/proc/{pid}/fd")
        for link in folder.iterdir() if folder.exists() else ():
            try:
                sockets.add(str(link.readlink()))
            except OSError:
                continue
    found = []
    for table, here in ("tcp", "0100007F"), ("tcp6", "0" * 24 + "01000000"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address = fields[1].partition(":")[0]
            mapped = address.endswith("FFFF00000100007F")
            if fields[3] == "0A" and address != here and not mapped:
                found += [fields[1]] if f"socket:[{fields[9]}]" in sockets else []
    return found
