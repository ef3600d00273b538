"""The figures of the pages against measurements that do not come from them.

    python bench/ground_truth.py [MODEL.gguf] [--threads N] [--requests N] [--json FILE]

- **Waterfall**: a client of plain sockets times requests from before it connects to the last byte,
  one at a time and four together. Beside it stands what the server's records say of the same
  request, and of the rest how much went by before the server had it, and after its last byte.
- **Bytes**: the model is written again with half of its layers. One decode step of each is run
  with the pages' accessed bits cleared before it (/proc/self/clear_refs): the memory that it
  touched, full less half, against the difference that is predicted. What is the same in both
  (code, stacks, buffers, the head) falls out. The same difference over the difference of their
  times is a rate, which the memory's measured peak bounds, but for what is in the caches.
- **Roofline**: the peaks that the server drew its roofs with, against what `pellucid bench`
  measures beside its cases.

Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from http_streams import Server, served

from pellucid.bench.forward import weight_sizes
from pellucid.core.cost import Cost
from pellucid.core.plan import Plan, Span
from pellucid.costs.step import step_cost
from pellucid.formats import open_checkpoint
from pellucid.formats.gguf_write import Entry, Value, write_gguf
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.models.registry import Model, load_model
from pellucid.ops.native import NativeOps
from pellucid.ops.native.backend import available_threads
from pellucid.ops.native.peaks import Probe

PAGE = 16
CONTEXT = 512
STEPS = 12
PROMPT = "Describe, in plain words and without numbers, how a river comes to be. " * 6
Row = tuple[str, str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    path = resolve(given.model, progress=TerminalProgress())
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(path, given.threads, given.requests, Path(scratch))
    print(table(found))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def measure(path: Path, threads: int, requests: int, scratch: Path) -> dict[str, Any]:
    flags = ("--threads", str(threads), "--max-model-len", "2048", "--no-access-log")
    with served(path, scratch / "server.log", *flags) as server:
        waterfall = against_the_client(server, requests)
        machine = get(server.port, "/live/about")["machine"]
    half = scratch / "half.gguf"
    halve(path, half)
    return {
        "model": path.name,
        "threads": threads,
        "waterfall": waterfall,
        "bytes": halved(path, half, threads),
        "peaks": peaks(machine, path, threads),
    }


# The waterfall


def against_the_client(server: Server, requests: int) -> dict[str, Any]:
    """Requests by themselves, then the same number four together."""
    ask(server.port, "warm")  # compiles the model's program
    alone = [ask(server.port, f"alone-{i}") for i in range(requests)]
    together: list[dict[str, Any]] = []
    for round_ in range(-(-requests // 4)):
        names = [f"together-{round_}-{i}" for i in range(4)]
        threads = [
            threading.Thread(target=lambda n=name: together.append(ask(server.port, n)))
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = {r["id"].rpartition(".")[0]: r for r in get(server.port, "/live/records")["requests"]}
    return {
        name: [compared(one, records[one["id"]]) for one in asked]
        for name, asked in (("alone", alone), ("four together", together))
    }


def ask(port: int, name: str) -> dict[str, Any]:
    """One streamed answer, by the machine's monotonic clock: when it began, connected, ended."""
    body = {"prompt": f"{name}: {PROMPT}", "max_tokens": 48, "ignore_eos": True, "stream": True}
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: {name}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connected = time.monotonic()
        connection.sendall(head.encode() + content)
        last = b""
        while piece := connection.recv(1 << 16):
            ended, last = time.monotonic(), (last + piece)[-64:]
            if b"[DONE]" in last:
                break
    return {"id": name, "began": began, "connected": connected, "ended": ended}


def compared(client: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds by the client's clock, and what the record has of them."""
    client_ms = 1000 * (client["ended"] - client["began"])
    record_ms = 1000 * (record["sent"] - record["received"])
    return {
        "client_ms": client_ms,
        "record_ms": record_ms,
        "before_ms": 1000 * (record["received"] - client["began"]),
        "after_ms": 1000 * (client["ended"] - record["sent"]),
        "share": record_ms / client_ms,
    }


def get(port: int, path: str) -> Any:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        said = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return json.loads(said.partition(b"\r\n\r\n")[2])


# Bytes


def halve(path: Path, out: Path) -> None:
    """The same model with the first half of its layers."""
    with open_checkpoint(path) as checkpoint:
        key = next(key for key in checkpoint.metadata if key.endswith(".block_count"))
        half = int(checkpoint.metadata[key]) // 2
        metadata = {
            name: Value(checkpoint.metadata.type_of(name), half if name == key else value)
            for name, value in checkpoint.metadata.items()
        }
        tensors = [
            Entry(info.name, info.shape, info.type)
            for info in checkpoint.tensors.values()
            if not info.name.startswith("blk.") or int(info.name.split(".")[1]) < half
        ]
        write_gguf(out, metadata, tensors, lambda entry: [checkpoint.raw(entry.name)])


def halved(path: Path, half: Path, threads: int) -> dict[str, float]:
    """The bytes of one decode step: predicted, and touched; of both models, in turn."""
    steps = {name: Step(file, threads) for name, file in (("full", path), ("half", half))}
    touched: dict[str, list[int]] = {name: [] for name in steps}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(STEPS):
        for name, step in steps.items():
            touched[name].append(touched_by(step.run))
        for name, step in steps.items():
            seconds[name].append(step.run())
    moved = {name: from_memory(step.cost) for name, step in steps.items()}
    predicted = moved["full"] - moved["half"]
    seen = statistics.median(touched["full"]) - statistics.median(touched["half"])
    took = statistics.median(seconds["full"]) - statistics.median(seconds["half"])
    return {
        "predicted_full": moved["full"],
        "predicted_half": moved["half"],
        "touched_full": statistics.median(touched["full"]),
        "touched_half": statistics.median(touched["half"]),
        "predicted_difference": predicted,
        "touched_difference": seen,
        "share": seen / predicted,
        "ms_full": 1000 * statistics.median(seconds["full"]),
        "ms_half": 1000 * statistics.median(seconds["half"]),
        "gb_per_s_of_the_difference": predicted / took / 1e9,
    }


def from_memory(cost: Cost) -> int:
    return cost.weights_read + cost.kv_read + cost.kv_written


class Step:
    """A decode step of one sequence after `CONTEXT` positions, that can be run again."""

    def __init__(self, path: Path, threads: int) -> None:
        ops = NativeOps(threads=threads)
        self._model: Model = load_model(open_checkpoint(path), ops)
        n_pages = -(-(CONTEXT + 1) // PAGE)
        self._cache = ops.new_cache(self._model.spec, n_pages, PAGE)
        pages = tuple(range(n_pages))
        prompt = Span(0, 0, tuple(range(100, 100 + CONTEXT)), pages, 1)
        self._model.forward(Plan((prompt,), PAGE), self._cache)
        span = Span(0, CONTEXT, (100,), pages, 1)
        self._plan = Plan((span,), PAGE)
        sizes = weight_sizes(self._model)
        self.cost = step_cost(self._model.spec, sizes, (span,), ops.kv_dtype, ops.kv_lanes)
        self.run()

    def run(self) -> float:
        """Seconds of it."""
        began = time.perf_counter()
        self._model.forward(self._plan, self._cache)
        return time.perf_counter() - began


def touched_by(run: Callable[[], Any]) -> int:
    """Bytes of the pages that this process accessed while `run` ran."""
    Path("/proc/self/clear_refs").write_text("1")
    run()
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Referenced:"):
            return 1024 * int(line.split()[1])
    raise SystemExit("/proc/self/smaps_rollup says nothing of accessed pages")


# The roofline


def peaks(machine: Mapping[str, float], path: Path, threads: int) -> dict[str, Any]:
    """The server's roofs, and the best of three of what `pellucid bench` measures."""
    with open_checkpoint(path) as checkpoint:
        probe = Probe(threads, sum(info.nbytes for info in checkpoint.tensors.values()))
    seen = [probe.measure() for _ in range(3)]
    now = {
        "peak_gb_per_s": max(one.read for one in seen) / 1e9,
        "peak_gops_int8": max(one.int8 for one in seen) / 1e9,
        "peak_gflops_f32": max(one.f32 for one in seen) / 1e9,
    }
    return {name: {"server": machine[name], "bench": value} for name, value in now.items()}


def table(found: Mapping[str, Any]) -> str:
    rows: list[Row] = [("figure", "on the page", "measured beside it", "page / measured")]
    for name, asked in found["waterfall"].items():
        middle = sorted(asked, key=lambda one: one["share"])[len(asked) // 2]
        worst = min(one["share"] for one in asked)
        rows.append(
            (
                f"waterfall, {name}",
                f"{middle['record_ms']:.1f} ms",
                f"{middle['client_ms']:.1f} ms (client)",
                f"{middle['share']:.3f}, least {worst:.3f}; "
                f"before {middle['before_ms']:.2f} ms, after {middle['after_ms']:.2f} ms",
            )
        )
    one = found["bytes"]
    rows.append(
        (
            "bytes, full less half",
            f"{one['predicted_difference'] / 1e6:.2f} MB",
            f"{one['touched_difference'] / 1e6:.2f} MB (touched)",
            f"{1 / one['share']:.3f}; at {one['gb_per_s_of_the_difference']:.1f} GB/s",
        )
    )
    for name, pair in found["peaks"].items():
        ratio = pair["server"] / pair["bench"]
        rows.append((name, f"{pair['server']:.1f}", f"{pair['bench']:.1f} (bench)", f"{ratio:.3f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join([f"{found['model']}, {found['threads']} threads", *lines])


if __name__ == "__main__":
    main()
