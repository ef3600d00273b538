"""What it costs an engine to be watched: throughput with and without a viewer, in turn.

    python bench/watching.py [MODEL] [--rounds N] [--seconds S] [--streams N]

A server with its engine in a process of its own answers streams without end. Rounds go in turn, in
an order drawn anew each time: nobody watches; a viewer reads /live/feed?spans=1, thirty messages a
second, and throws them away; the same, but the viewer has only what the cores leave over
(SCHED_IDLE), as one on another machine would take nothing. Of each thread the system says how long
it ran and how long it waited for a core: that is where a loss comes from, and it is steadier than
the rate. Then one process times what each step's record takes. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PORT = 8633
URL = f"http://127.0.0.1:{PORT}"
SETTLE_S = 0.4  # after a viewer came, who is first told of what there is

STREAMS = """
import json, selectors, socket, sys
port, streams = int(sys.argv[1]), int(sys.argv[2])
body = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}
content = json.dumps(body).encode()
head = "POST /v1/completions HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n"
head += f"Content-Type: application/json\\r\\nContent-Length: {len(content)}\\r\\n\\r\\n"
ready = selectors.DefaultSelector()
def ask():
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(head.encode() + content)
    ready.register(stream, selectors.EVENT_READ)
for _ in range(streams):
    ask()
while True:
    for key, _ in ready.select():
        if not key.fileobj.recv(1 << 16):
            ready.unregister(key.fileobj)
            key.fileobj.close()
            ask()
"""
VIEWER = """
import os, socket, sys
if sys.argv[2] == "idle":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
feed = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
feed.sendall(b"GET /live/feed?spans=1 HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
while feed.recv(1 << 16):
    pass
"""
WAYS = ("nobody", "viewer", "viewer elsewhere")


class Usage(NamedTuple):
    """Nanoseconds that threads ran, and waited for a core; how often they were woken."""

    ran: int
    waited: int
    woken: int


class Round(NamedTuple):
    """Tokens a second, and percent of a core that parts of it ran or waited for one."""

    rate: float
    engine_waited: float
    rest_ran: float
    wakes: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--streams", type=int, default=8)
    asked = parser.parse_args()
    print(json.dumps({**watched(asked), **recorded(asked.model, asked.streams)}, indent=1))


def watched(asked: argparse.Namespace) -> dict[str, Any]:
    """Rates and who waited, by way of watching."""
    found: dict[str, list[Round]] = {way: [] for way in WAYS}
    with served(asked.model) as server, client(STREAMS, str(asked.streams)):
        time.sleep(2.0)
        for number in range(asked.rounds):
            for way in random.Random(number).sample(WAYS, len(WAYS)):
                found[way].append(one_round(server, way, asked.seconds))
    return {way: summary(rounds, found["nobody"]) for way, rounds in found.items()}


def summary(rounds: list[Round], alone: list[Round]) -> dict[str, float]:
    """Medians; the cost is of rounds against those beside them with nobody."""
    costs = [100 * (1 - one.rate / other.rate) for one, other in zip(rounds, alone, strict=True)]

    def median(part: str, digits: int = 2) -> float:
        return round(statistics.median(getattr(one, part) for one in rounds), digits)

    return {
        "tokens_per_second": median("rate", 1),
        "cost_percent": round(statistics.median(costs), 2),
        "engine_waited_percent_of_a_core": median("engine_waited"),
        "server_ran_percent_of_a_core": median("rest_ran"),
        "server_wakes_per_second": median("wakes", 1),
    }


def one_round(server: int, way: str, seconds: float) -> Round:
    if way == "nobody":
        return measured(server, seconds)
    with client(VIEWER, "idle" if way == "viewer elsewhere" else "usual"):
        time.sleep(SETTLE_S)
        return measured(server, seconds)


def measured(server: int, seconds: float) -> Round:
    begun, tokens, before = time.monotonic(), generated(), usage(server)
    time.sleep(seconds)
    after, done = usage(server), generated()
    took = time.monotonic() - begun
    parts = [
        Usage(*(b - a for a, b in zip(old, new, strict=True)))
        for old, new in zip(before, after, strict=True)
    ]
    steps, rest = parts
    percent = 1e-7 / took
    return Round(
        (done - tokens) / took, percent * steps.waited, percent * rest.ran, rest.woken / took
    )


def usage(server: int) -> tuple[Usage, Usage]:
    """Of the threads that compute steps, and of all others of the server and its engine."""
    child = child_of(server)
    steps, rest = Usage(0, 0, 0), Usage(0, 0, 0)
    for process in server, child:
        for task in Path(f"/proc/{process}/task").iterdir():
            try:
                ran, waited, _ = map(int, (task / "schedstat").read_text().split())
                status = (task / "status").read_text()
            except OSError:  # it has ended
                continue
            woken = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
            one = Usage(ran, waited, woken)
            if process == child and int(task.name) != child:
                steps = Usage(*map(sum, zip(steps, one, strict=True)))
            else:
                rest = Usage(*map(sum, zip(rest, one, strict=True)))
    return steps, rest


def child_of(server: int) -> int:
    for task in Path(f"/proc/{server}/task").iterdir():
        children = (task / "children").read_text().split()
        if children:
            return int(children[0])
    raise SystemExit("the server has no engine")


@contextmanager
def served(model: str) -> Iterator[int]:
    """The process id of a server that is ready."""
    command = [sys.executable, "-m", "pellucid", "serve", model, "--port", str(PORT)]
    server = subprocess.Popen([*command, "--no-access-log"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{URL}/health").close()
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise SystemExit("the server does not start")
        yield server.pid
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def client(program: str, argument: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-S", "-c", program, str(PORT), argument])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def generated() -> int:
    """Tokens, counted by the server, of answers so far."""
    with urllib.request.urlopen(f"{URL}/metrics") as response:
        for line in response.read().decode().splitlines():
            if line.startswith("pellucid_generation_tokens_total"):
                return int(float(line.rpartition(" ")[2]))
    raise SystemExit("no count of tokens in /metrics")


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
    return {
        "record_us": round(1e6 * plain / steps, 1),
        "record_percent_of_step": round(100 * plain / whole, 3),
        "step_ms": round(1e3 * whole / steps, 3),
        "step_ms_with_stamps_over_without": stamped_over_plain(llm, prompts, params),
    }


def stamped_over_plain(llm: Any, prompts: list[Any], params: Any) -> float:
    """Median of runs in turn."""
    ratios = []
    for _ in range(5):
        seconds = []
        for stamps in None, 0.0:
            llm.engine.ledger.watch(1e6 if stamps == 0.0 else 0.0, stamps_every=stamps)
            began = time.perf_counter()
            llm.generate(prompts, params)
            seconds.append(time.perf_counter() - began)
            llm.engine.ledger._stamped_until = 0.0
        ratios.append(seconds[1] / seconds[0])
    return round(statistics.median(ratios), 3)


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


if __name__ == "__main__":
    main()
