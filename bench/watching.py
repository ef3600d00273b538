"""What it costs an engine to be watched: throughput with and without a viewer, in turn.

    python bench/watching.py [MODEL] [--rounds N] [--seconds S] [--streams N]

A server with its engine in a process of its own answers streams without end. In every other round
somebody reads /live/feed?spans=1, thirty messages a second, and throws them away: what remains is
what the server and the engine pay. Then one process times what each step's record takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT = 8633
URL = f"http://127.0.0.1:{PORT}"
BODY = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--streams", type=int, default=8)
    asked = parser.parse_args()
    print(json.dumps({**watched(asked), **recorded(asked.model, asked.streams)}, indent=1))


def watched(asked: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second without and with a viewer."""
    server = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "serve", asked.model, "--port", str(PORT)],
        stderr=subprocess.DEVNULL,
    )
    stop = threading.Event()
    try:
        _wait_for_server()
        for _ in range(asked.streams):
            threading.Thread(target=_stream, args=(stop,), daemon=True).start()
        time.sleep(2.0)
        alone, seen, messages = [], [], 0
        for _ in range(asked.rounds):
            alone.append(_round(server.pid, asked.seconds))
            leave = threading.Event()
            viewer = _Viewer(leave)
            seen.append(_round(server.pid, asked.seconds))
            leave.set()
            messages += viewer.messages
            print(alone[-1], seen[-1], file=sys.stderr, flush=True)
        stop.set()
    finally:
        server.terminate()
        server.wait(60)
    costs = [100 * (1 - b[0] / a[0]) for a, b in zip(alone, seen, strict=True)]
    extra = [100 * (b[1] - a[1]) for a, b in zip(alone, seen, strict=True)]
    return {
        "tokens_per_second_alone": [round(rate, 1) for rate, _ in alone],
        "tokens_per_second_watched": [round(rate, 1) for rate, _ in seen],
        "cost_percent_median": round(statistics.median(costs), 2),
        "processor_percent_of_a_core_median": round(statistics.median(extra), 2),
        "messages_per_second": round(messages / (asked.rounds * asked.seconds), 1),
    }


def recorded(model: str, batch: int) -> dict[str, Any]:
    """Microseconds that the record of a step takes, and their share of a step."""
    from pellucid import LLM, SamplingParams

    llm = LLM(model, max_num_seqs=batch)
    ledger = llm.engine.ledger
    params = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
    prompts = [{"prompt_token_ids": [5 + i] * 16} for i in range(batch)]
    llm.generate(prompts, params)
    clock = _Clock(ledger.enter)
    ledger.enter = clock  # type: ignore[method-assign]
    first = ledger.steps
    began = time.perf_counter()
    llm.generate(prompts, params)
    whole = time.perf_counter() - began
    steps = ledger.steps - first
    plain = clock.seconds
    ledger.watch(1e6, stamps_every=0)
    clock.seconds = 0.0
    began = time.perf_counter()
    llm.generate(prompts, params)
    stamped = time.perf_counter() - began
    return {
        "record_us": round(1e6 * plain / steps, 1),
        "record_percent_of_step": round(100 * plain / whole, 3),
        "step_ms": round(1e3 * whole / steps, 3),
        "step_ms_with_stamps": round(1e3 * stamped / steps, 3),
    }


class _Clock:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seconds = 0.0

    def __call__(self, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._function(*arguments)
        finally:
            self.seconds += time.perf_counter() - began


class _Viewer:
    """Reads the feed and throws it away."""

    def __init__(self, leave: threading.Event) -> None:
        self.messages = 0
        self._leave = leave
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with urllib.request.urlopen(f"{URL}/live/feed?spans=1") as response:
            while not self._leave.is_set():
                part = response.read1(1 << 16)
                self.messages += part.count(b"event: records")


def _stream(stop: threading.Event) -> None:
    while not stop.is_set():
        request = urllib.request.Request(
            f"{URL}/v1/completions", json.dumps(BODY).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request) as response:
                while response.read1(1 << 16):
                    pass
        except OSError:
            return


def _round(server: int, seconds: float) -> tuple[float, float]:
    """Tokens a second; and the seconds a second that the server and the reading thread of its
    engine compute, which a viewer adds to whoever else shares the machine."""
    begun, tokens, before = time.monotonic(), _tokens(), _processor_seconds(server)
    time.sleep(seconds)
    after, done = _processor_seconds(server), _tokens()
    took = time.monotonic() - begun
    return (done - tokens) / took, (after - before) / took


def _processor_seconds(server: int) -> float:
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    stats = [Path(f"/proc/{server}/stat")]
    stats += [Path(f"/proc/{child}/task/{child}/stat") for child in children]
    ticks = 0
    for stat in stats:
        fields = stat.read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _tokens() -> int:
    """Counted by the server, of answers so far."""
    with urllib.request.urlopen(f"{URL}/metrics") as response:
        for line in response.read().decode().splitlines():
            if line.startswith("pellucid_generation_tokens_total"):
                return int(float(line.rpartition(" ")[2]))
    raise SystemExit("no count of tokens in /metrics")


def _wait_for_server() -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{URL}/health").close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the server does not start")


if __name__ == "__main__":
    main()
