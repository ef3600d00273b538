"""Tokens a second of single steps, and of llama.cpp beside it, in turn.

    python bench/step.py MODEL.gguf --threads 2 --rounds 4 [--peer PYTHON]

PYTHON is an interpreter that has llama-cpp-python; it runs bench/llama_step.py on the same file.
Each round measures ours, then the peer's, so that a machine that wanders does so for both. On a
machine shared with others, `--threads 1 --clock cpu` counts the processor's time alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pellucid.core.plan import Plan, Span
from pellucid.formats.checkpoint import open_checkpoint
from pellucid.models.registry import Model, load_model
from pellucid.ops.native import NativeOps

PAGE = 16
# name -> (sequences, positions before the step, tokens of each sequence in the step)
CASES = {
    "decode 1": (1, 24, 1),
    "decode 8": (8, 24, 1),
    "decode 32": (32, 24, 1),
    "decode 1, context 1024": (1, 1024, 1),
    "prefill 512": (1, 0, 512),
}


CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


def measure(model: Model, case: tuple[int, int, int], seconds: float, clock: str) -> float:
    """Tokens a second: the median step of as many as fit into `seconds`."""
    sequences, before, length = case
    room = before + length + 256
    n_pages = -(-room // PAGE)
    cache = model.ops.new_cache(model.spec, sequences * n_pages, PAGE)

    def step(start: int, count: int) -> float:
        spans = tuple(
            Span(s, start, tuple(range(100, 100 + count)), pages(s), 1) for s in range(sequences)
        )
        begin = CLOCKS[clock]()
        model.forward(Plan(spans, PAGE), cache)
        return CLOCKS[clock]() - begin

    def pages(sequence: int) -> tuple[int, ...]:
        return tuple(range(sequence * n_pages, (sequence + 1) * n_pages))

    if before:
        step(0, before)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        position = before + (len(times) % 200 if length == 1 else 0)
        times.append(step(position, length))
    return sequences * length / statistics.median(times)


def peer(given: argparse.Namespace) -> dict[str, float]:
    script = Path(__file__).with_name("llama_step.py")
    numbers = (str(given.threads), str(given.seconds), given.clock)
    arguments = [given.peer, str(script), given.model, *numbers, json.dumps(CASES)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--simd", default="")
    parser.add_argument("--peer", help="a Python that has llama-cpp-python")
    given = parser.parse_args()
    if given.clock == "cpu" and given.threads != 1:
        parser.error("--clock cpu counts one thread: give --threads 1")
    ops = NativeOps(threads=given.threads, simd=given.simd)
    model = load_model(open_checkpoint(given.model), ops)
    ours: dict[str, list[float]] = {name: [] for name in CASES}
    theirs: dict[str, list[float]] = {name: [] for name in CASES}
    for round_ in range(given.rounds):
        for name, case in CASES.items():
            ours[name].append(measure(model, case, given.seconds, given.clock))
        if given.peer:
            for name, rate in peer(given).items():
                theirs[name].append(rate)
        print(f"round {round_ + 1} of {given.rounds} done", file=sys.stderr)
    for name in CASES:
        line = f"{name:24} {statistics.median(ours[name]):8.1f} tok/s"
        if given.peer:
            ratios = sorted(a / b for a, b in zip(ours[name], theirs[name], strict=True))
            line += f"   llama.cpp {statistics.median(theirs[name]):8.1f}"
            line += f"   ratio {statistics.median(ratios):.2f} [{ratios[0]:.2f}-{ratios[-1]:.2f}]"
        print(line)


if __name__ == "__main__":
    main()
