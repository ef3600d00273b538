"""Decode with weights of each type, and what its bytes say it should be.

    python bench/weight_types.py IN [--types f32,q8_0,q4_0] [--rounds 6] [--activations int8,f32]
        [--mixes] [--files FOLDER] [--json FILE]

IN is quantised to each type (`pellucid quantize`, with `--pure` unless `--mixes` are asked for)
into a temporary folder, or into `--files`, where those that are there already are taken. Each round
decodes with every type in turn, and beside each a plain read of as many bytes as the weights have
says what the machine's memory gave at that moment. Ratios are of the same round. With more than one
kind of activations, types are measured with each.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid.bench.cases import Case
from pellucid.bench.forward import measure, weight_sizes
from pellucid.engine.machine import processor_name
from pellucid.formats import open_checkpoint
from pellucid.models.registry import Model, load_model
from pellucid.ops.native import NativeOps
from pellucid.ops.native.peaks import Probe


@dataclass
class Entrant:
    """A type with a kind of activations."""

    name: str
    model: Model
    weight_bytes: int
    seconds: list[float] = field(default_factory=list)  # a step, by round
    read: list[float] = field(default_factory=list)  # bytes a second of a plain read
    per_step: int = 0  # bytes of weights that a step reads


@contextlib.contextmanager
def entrants(given: argparse.Namespace) -> Iterator[list[Entrant]]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        found: list[Entrant] = []
        for type in given.types.split(","):
            path = Path(given.files or folder, f"{Path(given.model).stem}-{type}.gguf")
            if not path.exists():
                write(given, type, path)
            for activations in given.activations.split(","):
                if type in ("f32", "f16", "bf16") and activations != "f32":
                    activations = "f32"  # what float weights read
                name = f"{type}, {activations}"
                if any(entrant.name == name for entrant in found):
                    continue
                checkpoint = opened.enter_context(open_checkpoint(path))
                ops = NativeOps(threads=given.threads, activations=activations)
                model = load_model(checkpoint, ops)
                total = sum(size.nbytes for size in weight_sizes(model).values())
                found.append(Entrant(name, model, total))
        yield found


def write(given: argparse.Namespace, type: str, path: Path) -> None:
    command = [sys.executable, "-m", "pellucid", "quantize", given.model, str(path)]
    command += ["--type", type, "--requantize", "--json", *([] if given.mixes else ["--pure"])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--types", default="f32,q8_0,q4_0")
    parser.add_argument("--activations", default="int8")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mixes", action="store_true", help="as usual, not one type for all")
    parser.add_argument("--files", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    with entrants(given) as all_of_them:
        for _ in range(given.rounds):
            for entrant in all_of_them:
                probe = Probe(given.threads, entrant.weight_bytes)
                sizes = weight_sizes(entrant.model)
                done = measure(entrant.model, Case("decode", given.steps, 1, 32), 1, probe, sizes)
                entrant.seconds.append(done.seconds[0] / done.n_steps)
                entrant.read.append(done.peaks[0].read)
                entrant.per_step = done.cost.weights_read // done.n_steps
        report(all_of_them)
        if given.json:
            given.json.write_text(json.dumps(as_json(given, all_of_them), indent=1) + "\n")


def as_json(given: argparse.Namespace, found: list[Entrant]) -> dict[str, Any]:
    first = found[0]
    return {
        "model": Path(given.model).name,
        "machine": {
            "processor": processor_name(),
            "threads": given.threads,
            "date": datetime.date.today().isoformat(),
        },
        "rounds": given.rounds,
        "types": {
            entrant.name.partition(",")[0]: {
                "tokens_per_second": [1 / seconds for seconds in entrant.seconds],
                "times_first": [a / b for a, b in zip(first.seconds, entrant.seconds, strict=True)],
                "share_of_read": [
                    entrant.per_step / seconds / read
                    for seconds, read in zip(entrant.seconds, entrant.read, strict=True)
                ],
            }
            for entrant in found
        },
    }


def report(found: list[Entrant]) -> None:
    print(
        f"{'':12} {'MB a step':>10} {'tokens/s':>9} {'GB/s':>7} {'of a read':>9}   times the first"
    )
    first = found[0]
    for entrant in found:
        rates = [entrant.per_step / seconds for seconds in entrant.seconds]
        share = statistics.median(r / p for r, p in zip(rates, entrant.read, strict=True))
        ratios = sorted(a / b for a, b in zip(first.seconds, entrant.seconds, strict=True))
        print(
            f"{entrant.name:12} {entrant.per_step / 1e6:10.1f} "
            f"{1 / statistics.median(entrant.seconds):9.1f} {statistics.median(rates) / 1e9:7.1f} "
            f"{share:9.0%}   {statistics.median(ratios):.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f}), "
            f"bytes {first.per_step / entrant.per_step:.2f}"
        )


if __name__ == "__main__":
    main()
