"""`pellucid batch` killed at random moments and resumed, beside a run that nothing broke.

    python bench/batch_kill.py [MODEL] [--lines 300] [--kills 10] [--seed 0]

A file of requests of every kind (chat, completions, embeddings; greedy, seeded and not; short and
long; some refused) is answered twice: once without a break, and once by a process that gets SIGKILL
ten times, each time at a random moment (up to a second after a random count of lines), and is
started again. Each line must be in the output once, and both outputs must be equal. What is not
compared: the time (`created`, `timings`) and what others had computed of a prompt
(`cached_tokens`), which are true of a run and not of an answer.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SUBJECTS = "rivers bridges maps clocks engines bread winters lighthouses trains gardens".split()


def main() -> None:
    given = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        report = _compare(given, Path(folder))
    print(json.dumps(report))
    sys.exit(0 if report["equal"] and report["each_once"] else 1)


def requests(count: int) -> list[dict[str, Any]]:
    """Lines of every kind, in turn."""
    return [_request(number) for number in range(count)]


def _request(number: int) -> dict[str, Any]:
    subject = f"{SUBJECTS[number % len(SUBJECTS)]} {number}"
    kind = number % 7
    body: dict[str, Any]
    if kind == 5:
        url, body = "/v1/embeddings", {"input": [f"All about {subject}.", subject]}
    elif kind in (3, 4):
        url, body = "/v1/completions", {"prompt": f"A poem of {subject}:\n", "n": kind - 2}
    else:
        url = "/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": f"Tell me of {subject}. " * (1 + kind)}]}
    if kind != 5:
        body |= {"max_tokens": (4, 16, 64)[number % 3]}
        body |= ({}, {"temperature": 0}, {"seed": number, "temperature": 0.8})[number // 2 % 3]
    if number % 23 == 22:
        body["top_p"] = 7  # refused
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": body}


def comparable(line: dict[str, Any]) -> dict[str, Any]:
    """A line of an output without what is true of its run alone."""
    body = dict(line["response"]["body"])
    for name in ("created", "created_at", "timings"):
        body.pop(name, None)
    if "prompt_tokens_details" in body.get("usage", {}):
        body["usage"] = {k: v for k, v in body["usage"].items() if k != "prompt_tokens_details"}
    return {**line, "response": {**line["response"], "body": body}}


def _compare(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    lines = requests(given.lines)
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    begin = time.monotonic()
    _command(given.model, source, folder / "whole.jsonl").wait()
    unbroken = time.monotonic() - begin
    kills = _killed(given, source, folder / "killed.jsonl")
    whole, killed = (_read(folder / name) for name in ("whole.jsonl", "killed.jsonl"))
    ids = sorted(line["custom_id"] for line in killed)
    by_id = [{line["custom_id"]: comparable(line) for line in found} for found in (whole, killed)]
    return {
        "lines": len(lines),
        "kills": len(kills),
        "lines_at_each_kill": kills,
        "each_once": ids == sorted(line["custom_id"] for line in lines),
        "equal": by_id[0] == by_id[1],
        "refused": sum(line["error"] is not None for line in whole),
        "unbroken_s": round(unbroken, 1),
    }


def _killed(given: argparse.Namespace, source: Path, target: Path) -> list[int]:
    """Runs the batch to its end in spite of `given.kills` kills; how many lines there were at each.

    A kill comes a random time of up to a second after a random count of lines. One that came too
    late, because the batch had ended, is none, and the output is begun anew.
    """
    rng = random.Random(given.seed)
    kills: list[int] = []
    while len(kills) < given.kills:
        counts = sorted(rng.randrange(given.lines) for _ in range(given.kills))
        target.unlink(missing_ok=True)
        kills.clear()
        for count in counts:
            process = _command(given.model, source, target)
            while _count(target) < count and process.poll() is None:
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 1.0))
            process.send_signal(signal.SIGKILL)
            if process.wait() != -signal.SIGKILL:
                print("a kill came too late: begun anew", file=sys.stderr)
                break
            kills.append(_count(target))
            print(f"kill {len(kills)} at {kills[-1]} lines", file=sys.stderr)
    assert _command(given.model, source, target).wait() == 0
    return kills


def _count(path: Path) -> int:
    """Whole lines."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _command(model: str | None, source: Path, target: Path) -> subprocess.Popen[bytes]:
    chosen = ("--model", model) if model else ()
    command = (sys.executable, "-m", "pellucid", "batch", str(source), str(target), *chosen)
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _read(path: Path) -> list[dict[str, Any]]:
    """The whole lines of an output."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
