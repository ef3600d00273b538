"""`pellucid serve` as an operator meets it: two processes, signals and logs. On a tiny model.

To hold an engine up its process is stopped (SIGSTOP), so that nothing here depends on time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pellucid.core.errors import BadInput
from pellucid.server import create_app, serving
from tests.python.server.fake import FakeClient
from tests.python.server.running import events_of

SERVE = [sys.executable, "-m", "pellucid", "serve"]
SMALL = ["--backend", "reference", "--port", "0", "--kv-cache-memory", "1MiB"]
SECRET = "quite secret"
LONG = {"prompt": SECRET, "max_tokens": 60, "ignore_eos": True, "temperature": 0}


class Served:
    """A server in a process of its own; `log` is what it wrote so far."""

    def __init__(self, path: Path, *flags: str) -> None:
        self.log: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*SERVE, str(path), *SMALL, *flags], stderr=subprocess.PIPE, text=True
        )
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.url = self.said("listening")["url"]
        self.http = httpx.Client(base_url=self.url, timeout=120)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.log.append(json.loads(line))
                self._changed.notify()
        with self._changed:
            self._changed.notify()

    def said(self, message: str) -> dict[str, Any]:
        """The first line of the log with this message, waited for."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.log if line["message"].startswith(message)]

        with self._changed:
            assert self._changed.wait_for(found, 120), self.log
            return found()[0]

    def engine(self) -> int:
        """Its child's process id."""
        listed = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=True
        )
        [child] = listed.stdout.split()
        return int(child)

    def count(self, name: str) -> float:
        text = self.http.get("/metrics").text
        [found] = re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)
        return float(found)

    def begun(self) -> float:
        """Requests that came in so far."""
        return self.count("pellucid_request_params_n_count")

    def ended(self) -> int:
        code = self.process.wait(120)
        self._reader.join(120)
        return code

    def close(self) -> None:
        self.http.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.ended()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def serve(tiny_path: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(*flags: str) -> Served:
        started.append(Served(tiny_path, *flags))
        return started[-1]

    yield start
    for served in started:
        served.close()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to pass")


def stream(served: Served, **fields: Any) -> tuple[threading.Thread, list[httpx.Response]]:
    """A stream that is read to its end elsewhere."""
    answers: list[httpx.Response] = []

    def read() -> None:
        ask = {**LONG, "stream": True, **fields}
        answers.append(httpx.post(f"{served.url}/v1/completions", json=ask, timeout=120))

    thread = threading.Thread(target=read)
    thread.start()
    return thread, answers


def texts_of(answer: httpx.Response) -> str:
    return "".join(json.loads(e)["choices"][0]["text"] for e in events_of(answer)[:-1])


def test_a_killed_engine_and_an_orderly_end(serve: Callable[..., Served]) -> None:
    served = serve("--max-num-seqs", "4", "--shutdown-timeout", "100")
    alone = served.http.post("/v1/completions", json=LONG).json()["choices"][0]["text"]

    engine = served.engine()
    ask = {**LONG, "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/completions", json=ask, timeout=120) as begun:
        lines = begun.iter_lines()
        assert next(lines).startswith("data: ")  # it has begun, and the rest of it is not out
        os.kill(engine, signal.SIGSTOP)
        waiting = [stream(served) for _ in range(6)]
        until(lambda: served.begun() == 8)
        os.kill(engine, signal.SIGKILL)
        events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    error = json.loads(events[-2])["error"]
    assert error["code"] == "engine_unavailable"
    assert "SIGKILL" in error["message"]
    assert events[-1] == "[DONE]"
    for thread, answers in waiting:  # nothing of them was out: the next engine answers them
        thread.join(120)
        assert texts_of(answers[0]) == alone
    assert served.http.get("/health").status_code == 200
    assert served.said("the engine process was ended by signal 9")["level"] == "error"
    assert served.engine() != engine
    again = served.http.post("/v1/completions", json=LONG)
    assert again.json()["choices"][0]["text"] == alone
    assert served.count("pellucid_engine_restarts_total") == 1

    held = served.engine()
    os.kill(held, signal.SIGSTOP)
    thread, answers = stream(served)
    until(lambda: served.begun() == 10)
    served.process.send_signal(signal.SIGTERM)
    served.said("shutting down")
    until(lambda: not can_connect(served.url))
    os.kill(held, signal.SIGCONT)
    thread.join(120)
    assert texts_of(answers[0]) == alone
    assert served.ended() == 0
    assert served.log[-1]["message"] == "ended"
    with pytest.raises(ProcessLookupError):
        os.kill(held, 0)
    assert SECRET not in json.dumps(served.log)
    logged = [line for line in served.log if line["message"] == "request"]
    assert all(line["request_id"] and line["status"] for line in logged)
    first = served.log[0]
    assert "1048576 (--kv-cache-memory)" in first["kv_cache_memory"]
    assert any("pages of 16 positions" in line["message"] for line in served.log)
    assert any("sampling defaults" in line["message"] for line in served.log)


def can_connect(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=120)
    except httpx.ConnectError:
        return False
    except httpx.HTTPError:
        return True
    return True


def test_ctrl_c_ends_it_in_order_and_prompts_are_logged_when_asked(
    serve: Callable[..., Served],
) -> None:
    served = serve("--log-prompts", "--no-engine-process", "--no-access-log")
    assert served.http.post("/v1/completions", json={**LONG, "max_tokens": 2}).status_code == 200
    assert served.said("prompt")["prompt"] == SECRET
    served.process.send_signal(signal.SIGINT)
    assert served.ended() == 0
    assert not [line for line in served.log if line["message"] == "request"]


@pytest.mark.parametrize(
    ("flags", "environment", "said"),
    [
        (["--max-num-seq", "3"], {}, "--max-num-seqs"),
        ([], {"PELLUCID_MAX_NUM_SEQ": "3"}, "PELLUCID_MAX_NUM_SEQS"),
        (["--kv-cache-dtype", "int3"], {}, "int3"),
        (["--chat-template", "no/such/file"], {}, "cannot be read"),
    ],
)
def test_what_cannot_be_honoured_is_one_line(
    flags: list[str], environment: dict[str, str], said: str, tiny_path: Path
) -> None:
    done = subprocess.run(
        [*SERVE, str(tiny_path), *SMALL, *flags],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert said in error


def test_the_loser_of_a_race_for_a_port_says_which(make_fake: Callable[..., FakeClient]) -> None:
    """Two processes may bind one port while neither listens; then one does."""
    winner = serving.listen("127.0.0.1", 0)
    port = winner.getsockname()[1]
    loser = serving.listen("127.0.0.1", port)
    try:
        winner.listen()
        client = make_fake()
        with pytest.raises(BadInput, match=rf"127\.0\.0\.1:{port} cannot be listened on: Address"):
            asyncio.run(serving.serve(create_app(client), loser))
        with pytest.raises(BadInput, match=rf"127\.0\.0\.1:{port} cannot be listened on: Address"):
            serving.listen("127.0.0.1", port)
    finally:
        winner.close()
        loser.close()
