"""A batch in shards, on a cluster of two nodes: whatever ends, no line is lost or there twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from batch_kill import comparable, requests
from click.testing import CliRunner

from pellucid.cli.main import app
from tests.cluster.nodes import PATIENCE_S, cluster_of, processes_named, processes_of, signal_all
from tests.python.engine.tiny import write_model

LINES = 200


def test_batches(tmp_path: Path) -> None:
    """In one cluster, which takes longer to start than most of this does."""
    tiny = write_model(tmp_path / "tiny.gguf", layers=5)
    with cluster_of(2, 2) as cluster:
        a_batch_is_what_it_is_without_a_cluster(tmp_path, tiny)
        an_engine_that_ends_loses_no_line(tmp_path, tiny)
        a_run_that_is_killed_is_gone_on_with(tmp_path, tiny, cluster)
        a_node_that_is_lost_loses_no_line(
            tmp_path, tiny, cluster
        )  # the last: nobody brings it back


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["batch", *arguments])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_id(path: Path) -> dict[str, Any]:
    found = read(path)
    by = {line["custom_id"]: comparable(line) for line in found}
    assert len(by) == len(found), "a line is there twice"
    return by


def write_requests(path: Path) -> None:
    lines = requests(LINES)
    for line in lines:  # what fits the tiny model's context
        if "messages" in line["body"]:
            line["body"]["messages"] = [{"role": "user", "content": line["custom_id"]}]
        if "max_tokens" in line["body"]:
            line["body"]["max_tokens"] = min(16, line["body"]["max_tokens"])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text + "nope\n")


def a_batch_is_what_it_is_without_a_cluster(folder: Path, model: Path) -> None:
    source, alone, sharded = (folder / name for name in ("in", "alone", "sharded"))
    write_requests(source)
    flags = ("--model", str(model), "--threads", "1")
    assert command(str(source), str(alone), *flags).exit_code == 0
    ray = (*flags, "--ray", "--replicas", "2")
    ended = command(str(source), str(sharded), *ray)
    assert ended.exit_code == 0, ended.output
    assert by_id(sharded) == by_id(alone)
    whole = sharded.read_bytes().splitlines(keepends=True)
    # As a kill leaves it: some lines, and the beginning of another.
    sharded.write_bytes(b"".join(whole[:70]) + whole[70][:40])
    assert command(str(source), str(sharded), *ray).exit_code == 0
    assert by_id(sharded) == by_id(alone)
    assert sharded.read_bytes().startswith(b"".join(whole[:70]))
    assert (
        command(str(source), str(alone), *ray).exit_code == 0
    )  # either way goes on from the other


def an_engine_that_ends_loses_no_line(folder: Path, model: Path) -> None:
    source, alone, killed = (folder / name for name in ("in", "alone", "killed"))
    met = threading.Event()
    done = threading.Event()

    def kill() -> None:
        """One of the engines, as soon as lines are there."""
        while not done.is_set():
            if killed.exists() and killed.stat().st_size:
                workers = processes_named("Answerer")
                if workers:
                    os.kill(workers[0], signal.SIGKILL)
                    met.set()
                    return

    killer = threading.Thread(target=kill)
    killer.start()
    flags = ("--model", str(model), "--max-num-seqs", "4", "--threads", "1")
    ended = command(str(source), str(killed), *flags, "--ray", "--replicas", "2")
    done.set()
    killer.join()
    assert ended.exit_code == 0, ended.output
    assert met.is_set(), "no engine was met"
    assert by_id(killed) == by_id(alone)


def a_run_that_is_killed_is_gone_on_with(folder: Path, model: Path, cluster: Any) -> None:
    source, alone, killed = (folder / name for name in ("in", "alone", "cut short"))
    flags = ("--model", str(model), "--threads", "1", "--ray", "--replicas", "2")
    batch = (sys.executable, "-m", "pellucid", "batch", str(source), str(killed))
    with subprocess.Popen(
        (*batch, *flags, "--max-num-seqs", "2", "--ray-address", cluster.address),
        stderr=subprocess.DEVNULL,
    ) as run:
        has_lines(killed)
        run.kill()
    done = killed.read_bytes()
    assert done.count(b"\n") < LINES, "it was not met in the middle"
    ended = command(str(source), str(killed), *flags)
    assert ended.exit_code == 0, ended.output
    assert by_id(killed) == by_id(alone)
    assert killed.read_bytes().startswith(done[: done.rfind(b"\n") + 1])


def a_node_that_is_lost_loses_no_line(folder: Path, model: Path, cluster: Any) -> None:
    source, alone, lost = (folder / name for name in ("in", "alone", "node lost"))
    lines: list[int] = []

    def lose() -> None:
        has_lines(lost)
        signal_all(processes_of(cluster.others[0]), signal.SIGKILL)
        lines.append(lost.read_bytes().count(b"\n"))

    loser = threading.Thread(target=lose)
    loser.start()
    flags = ("--model", str(model), "--threads", "1", "--max-num-seqs", "2")
    ended = command(str(source), str(lost), *flags, "--ray", "--replicas", "2")
    loser.join()
    assert ended.exit_code == 0, ended.output
    assert lines[0] < LINES, "it was not met in the middle"
    assert by_id(lost) == by_id(alone)


def has_lines(path: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < until, f"nothing comes to {path}"
        time.sleep(0.01)
