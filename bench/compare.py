"""Ours and its peers in turn, A B A B, in one call; the ratio pair by pair.

    python bench/compare.py [MODEL] --peer-python PYTHON [--q4-0] [--json FILE]

PYTHON is an interpreter that has llama-cpp-python. Other peers: `--peer-python openvino=PYTHON`,
`--peer-python transformers=PYTHON`. Each engine is a process that sleeps while another runs. Ours
is the whole engine through its Python API (`LLM.generate`: scheduler, pages, greedy sampling, text
out); llama.cpp's time is that of llama_decode alone.

MODEL is a GGUF file, or a name of `pellucid list`; the default model without one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers.client import Worker, WorkerError
from peers.machine import first_output, spinner

from pellucid import __version__
from pellucid.bench.run import Settings, run_bench
from pellucid.cli.machine import describe_machine
from pellucid.core.plan import Span
from pellucid.costs import WeightSize, step_cost
from pellucid.formats import open_checkpoint
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.models.registry import read_spec
from pellucid.ops.native.peaks import Probe

OURS = "pellucid"
HERE = Path(__file__).resolve().parent
SCRIPTS = {"llama.cpp": "llama_cpp", "openvino": "openvino", "transformers": "transformers"}
PROMPT = "The sky is blue because"
REST = 0.05  # seconds between two measurements: threads that linger after the last go to sleep

# Contexts are those before the first step. Steps: about a second of each on two cores.
CASES: dict[str, dict[str, Any]] = {
    "decode 1": {"kind": "decode", "sequences": 1, "context": 16, "tokens": 96},
    "decode 1, context 1024": {"kind": "decode", "sequences": 1, "context": 1024, "tokens": 48},
    "decode 8": {"kind": "decode", "sequences": 8, "context": 16, "tokens": 48},
    "decode 32": {"kind": "decode", "sequences": 32, "context": 16, "tokens": 24},
    "prefill 512": {"kind": "prefill", "tokens": 512},
    "prefill 4000": {"kind": "prefill", "tokens": 4000},
}
SLOW_PEERS = ("openvino", "transformers")
SLOW_CASES = ("decode 1", "prefill 512")  # what is asked of them


def main() -> None:
    given = _arguments()
    os.environ["PELLUCID_ACTIVATIONS"] = given.activations  # our worker's
    model = resolve(given.model, progress=TerminalProgress())
    result: dict[str, Any] = {
        "machine": _machine(),
        "threads": given.threads,
        "rounds": given.rounds,
        "activations": given.activations,
        "spinner": given.spinner,
        "files": [],
    }
    with tempfile.TemporaryDirectory() as scratch, spinner(given.spinner):
        files = [model]
        if given.q4_0:
            files.append(requantized(model, given.peers["llama.cpp"], "q4_0"))
        for path in files:
            result["files"].append(compare_file(path, given, Path(scratch) / "log"))
            _print_file(result["files"][-1])
        if given.start:
            result["first_token_seconds"] = first_tokens(model, given)
            _print_start(result["first_token_seconds"])
        if given.share:
            result["whole_engine"] = _python_share(model, given.threads)
            _print_share(result["whole_engine"])
    result["machine"]["load_average_after"] = list(os.getloadavg())
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def compare_file(path: Path, given: argparse.Namespace, log: Path) -> dict[str, Any]:
    """Every case of one file by every engine, in turn."""
    cases = {name: CASES[name] for name in given.cases}
    weights = weight_bytes(path)
    probe = Probe(given.threads, weights)
    rates: dict[str, dict[str, list[float]]] = {name: {} for name in cases}
    reads: dict[str, list[float]] = {name: [] for name in cases}
    with _workers(path, given, log) as workers:
        for round_ in range(given.rounds):
            for name, case in cases.items():
                reads[name].append(probe.measure().read)
                for engine, worker in workers.items():
                    if engine in SLOW_PEERS and name not in SLOW_CASES:
                        continue
                    time.sleep(REST)
                    rate = worker.measure(case, salt=round_)
                    rates[name].setdefault(engine, []).append(rate)
                    _say(f"round {round_ + 1}, {name}: {engine} {rate:.1f} tok/s")
        infos = {engine: worker.info for engine, worker in workers.items()}
    return {
        "model": path.name,
        "weight_bytes_per_step": weights,
        "engines": infos,
        "cases": [_case(name, cases[name], rates[name], reads[name], weights) for name in cases],
    }


@contextlib.contextmanager
def _workers(path: Path, given: argparse.Namespace, log: Path) -> Iterator[dict[str, Worker]]:
    """One worker for each engine, ours first; all end with the block."""
    longest = max(c.get("context", 0) + c["tokens"] for c in map(CASES.__getitem__, given.cases))
    pythons = {OURS: sys.executable, **given.peers}
    workers: dict[str, Worker] = {}
    try:
        for engine, python in pythons.items():
            configuration = {
                "model": str(path),
                "threads": given.threads,
                "max_model_len": longest + 2,
            }
            script = HERE / "peers" / f"{SCRIPTS.get(engine, engine)}_worker.py"
            workers[engine] = Worker(python, script, configuration, log)
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


def _case(
    name: str,
    case: dict[str, Any],
    rates: dict[str, list[float]],
    reads: list[float],
    weights: int,
) -> dict[str, Any]:
    """What was measured of a case, with the ratio of each pair."""
    result: dict[str, Any] = {
        "name": name,
        **case,
        "tokens_per_second": rates,
        "read_bytes_per_second": reads,
        "ratios": {
            peer: [ours / theirs for ours, theirs in zip(rates[OURS], rates[peer], strict=True)]
            for peer in rates
            if peer != OURS
        },
    }
    if case["kind"] == "decode":
        steps = [rate / case["sequences"] for rate in rates[OURS]]
        result["share_of_read"] = [s * weights / read for s, read in zip(steps, reads, strict=True)]
    return result


def weight_bytes(path: Path) -> int:
    """Bytes of weights that a step of one token reads."""
    with open_checkpoint(path) as checkpoint:
        sizes = {n: WeightSize(t.shape, t.nbytes) for n, t in checkpoint.tensors.items()}
        spec = read_spec(checkpoint)[1]
    return step_cost(spec, sizes, [Span(0, 0, (0,), (0,), 1)], "f16").weights_read


def requantized(path: Path, python: str, kind: str) -> Path:
    """The file in another type, made by llama.cpp's quantizer once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pellucid" / "bench"
    target = cache / str(path.stat().st_size) / f"{path.stem}-as-{kind}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        script = HERE / "peers" / "requantize_llama_cpp.py"
        command = [python, str(script), str(path), str(partial), kind]
        subprocess.run(command, check=True, capture_output=True)
        partial.replace(target)
    return target


def first_tokens(path: Path, given: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds from process start to the first token of a short prompt, file cache warm, in turn."""
    ours = [sys.executable, "-m", "pellucid", "run", str(path), PROMPT, "--raw", "--offline"]
    ours += ["--backend", "native", "--threads", str(given.threads), "--max-tokens", "1"]
    commands = {OURS: [*ours, "--temperature", "0"]}
    if "llama.cpp" in given.peers:
        script = HERE / "peers" / "first_token_llama_cpp.py"
        theirs = [given.peers["llama.cpp"], str(script), str(path), str(given.threads), PROMPT]
        commands["llama.cpp"] = theirs
    seconds: dict[str, list[float]] = {engine: [] for engine in commands}
    for round_ in range(given.rounds + 1):
        for engine, command in commands.items():
            taken = first_output(command)
            if round_:  # the first warms the cache
                seconds[engine].append(taken)
    return seconds


def _python_share(path: Path, threads: int) -> list[dict[str, Any]]:
    """Decode through the whole engine, with the part of a step outside native code."""
    settings = Settings(
        prefill=(), decode=48, batches=(1, 8, 32), contexts=(), repeats=4, threads=threads
    )
    report = run_bench(path, settings, _say)
    return [
        {
            "batch": whole.batch,
            "step_seconds": list(whole.step_seconds.values),
            "python_share": list(whole.python_share.values) if whole.python_share else None,
        }
        for whole in report.whole
    ]


def _machine() -> dict[str, Any]:
    facts = describe_machine()
    kept = ("python", "system", "processor", "architecture", "cores", "instruction_sets")
    return {
        "pellucid": __version__,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
        "load_average": list(os.getloadavg()),
        "platform": platform.platform(),
        **{name: facts[name] for name in kept},
    }


def _commit() -> str | None:
    command = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _print_file(found: dict[str, Any]) -> None:
    print(f"\n{found['model']}: {found['weight_bytes_per_step'] / 1e6:.1f} MB of weights a step")
    for case in found["cases"]:
        for engine, rates in case["tokens_per_second"].items():
            line = f"  {case['name']:24} {engine:14} {statistics.median(rates):9.1f} tok/s"
            line += f"  [{min(rates):.1f} - {max(rates):.1f}]"
            ratios = case["ratios"].get(engine)
            if ratios:
                pairs = " ".join(f"{ratio:.2f}" for ratio in ratios)
                line += f"   ours is {statistics.median(ratios):.2f} times as fast: {pairs}"
            elif "share_of_read" in case and case["sequences"] == 1:
                read = statistics.median(case["read_bytes_per_second"]) / 1e9
                share = statistics.median(case["share_of_read"])
                line += f"   {share:.0%} of a plain read ({read:.1f} GB/s)"
            print(line, flush=True)


def _print_start(seconds: dict[str, list[float]]) -> None:
    print("\nprocess start to first token")
    for engine, values in seconds.items():
        line = f"  {engine:14} {statistics.median(values):6.2f} s"
        print(f"{line}  [{min(values):.2f} - {max(values):.2f}]", flush=True)


def _print_share(whole: list[dict[str, Any]]) -> None:
    print("\nPython's own share of a decode step, whole engine")
    for measured in whole:
        share, seconds = measured["python_share"], measured["step_seconds"]
        line = f"  batch {measured['batch']:3} {1e3 * statistics.median(seconds):8.2f} ms a step"
        print(f"{line}  {statistics.median(share):.1%}" if share else line, flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--peer-python", action="append", default=[], metavar="[PEER=]PYTHON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--activations", default="int8", help="what our products read")
    parser.add_argument("--case", dest="cases", action="append", choices=CASES, metavar="CASE")
    parser.add_argument("--q4-0", action="store_true", help="the same, both engines on Q4_0")
    parser.add_argument("--spinner", action="store_true", help="beside a busy process on a core")
    parser.add_argument("--start", action="store_true", help="process start to first token, too")
    parser.add_argument("--share", action="store_true", help="Python's own share of a step, too")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    given.cases = given.cases or list(CASES)
    given.peers = {}
    for word in given.peer_python:
        name, equals, python = word.partition("=")
        if not equals:
            name, python = "llama.cpp", word
        if name not in SCRIPTS:
            parser.error(f"--peer-python: {name!r} is none of {', '.join(SCRIPTS)}")
        given.peers[name] = python
    if given.q4_0 and "llama.cpp" not in given.peers:
        parser.error("--q4-0: llama.cpp quantises the file: give its --peer-python")
    if given.rounds < 1 or given.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    return given


if __name__ == "__main__":
    try:
        main()
    except WorkerError as error:
        sys.exit(f"error: {error}")
