"""batch on the default model, killed and stopped as the world does it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_kill import comparable

N_LINES = 8
FLAGS = ("--threads", "1")
Start = Callable[..., "subprocess.Popen[str]"]


def _request(number: int) -> dict[str, Any]:
    """The last one is long, so that a process which is to be killed is still at work."""
    body = {
        "messages": [{"role": "user", "content": f"Tell me a story of {number} rivers."}],
        "max_tokens": 200 if number == N_LINES - 1 else 4 + 3 * number,
        "ignore_eos": True,
    }
    url = "/v1/chat/completions"
    return {"custom_id": str(number), "method": "POST", "url": url, "body": body}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batch") / "in.jsonl"
    path.write_text("".join(json.dumps(_request(n)) + "\n" for n in range(N_LINES)))
    return path


@pytest.fixture
def start(source: Path, smollm2_path: Path) -> Iterator[Start]:
    """Begins a batch in a process of its own, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(target: Path, *flags: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pellucid", "batch", str(source), str(target)]
        command += ["--model", str(smollm2_path), "--max-num-seqs", "1", *FLAGS, *flags]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def whole(source: Path, smollm2_path: Path) -> dict[str, Any]:
    """The output of a run that nothing broke, of another batch size."""
    target = source.with_name("whole.jsonl")
    command = [sys.executable, "-m", "pellucid", "batch", str(source), str(target)]
    command += ["--model", str(smollm2_path), *FLAGS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return by_id(target)


def lines_of(target: Path) -> int:
    return target.read_bytes().count(b"\n") if target.exists() else -1


def by_id(target: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in target.read_bytes().split(b"\n")[:-1]]
    found = {line["custom_id"]: comparable(line) for line in lines}
    assert sorted(found, key=int) == [str(n) for n in range(N_LINES)] and len(lines) == N_LINES
    return found


def until(target: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until `target` has that many lines; 0: until it is there."""
    while lines_of(target) < count and process.poll() is None:
        time.sleep(0.001)


def test_killed_and_stopped_it_ends_as_if_it_had_not_been(
    start: Start, whole: dict[str, Any], tmp_path: Path
) -> None:
    target = tmp_path / "out.jsonl"
    for count in (0, 2):
        process = start(target)
        until(target, count, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL, process.communicate()
    process = start(target)
    until(target, 4, process)
    refused = start(target)
    _, said = refused.communicate()
    assert (refused.returncode, said.count("\n")) == (2, 1)
    assert "another batch is writing it" in said
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    found = lines_of(target)
    assert f"stopped: {found} of {N_LINES} lines are in {target}; the same command" in said
    assert "Traceback" not in said
    process = start(target, "--json")
    out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["found_done"] == found >= 4
    assert by_id(target) == whole
