"""The error of our quantisers beside ggml's, type by type, on the same tensors.

    python bench/quantizers.py [MODEL] --peer-python PYTHON [--rows N] [--json FILE]

Random tensors of several shapes of distribution, and one matrix of each kind of MODEL. An error is
the root mean square of what was lost over that of the values. The exit code is 1 if any of ours is
above the peer's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.formats import open_checkpoint
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.quant.dequantize import dequantize
from pellucid.quant.quantize import QUANTIZED_TYPES, quantize
from pellucid.quant.types import TensorType, layout

Floats = NDArray[np.float32]
WORKER = Path(__file__).resolve().parent / "peers" / "quantize_llama_cpp.py"
TYPES = sorted(QUANTIZED_TYPES)
# Rounding of sums; both may find the same optimum.
_EQUAL = 1 + 1e-5


def random_tensors(rows: int) -> Iterator[tuple[str, Floats]]:
    """Named float32 [rows, 1024]."""
    rng, shape = np.random.default_rng(0), (rows, 1024)
    outliers = np.where(rng.random(shape) < 1e-3, 30, 1)
    yield "normal", (rng.standard_normal(shape) * 0.02).astype(np.float32)
    yield "laplace", rng.laplace(size=shape).astype(np.float32)
    yield "student t, 3 degrees", rng.standard_t(3, shape).astype(np.float32)
    yield "student t, 1.5 degrees", rng.standard_t(1.5, shape).astype(np.float32)
    yield "normal with outliers", (rng.standard_normal(shape) * outliers).astype(np.float32)
    yield "uniform", (rng.random(shape) - 0.5).astype(np.float32)
    yield "all positive", (rng.standard_normal(shape) * 0.01 + 3).astype(np.float32)
    yield "sparse", (rng.standard_normal(shape) * (rng.random(shape) < 0.05)).astype(np.float32)


def model_tensors(path: Path, rows: int) -> Iterator[tuple[str, Floats]]:
    """The first matrix of each kind, as half precision: what a full-precision file would hold."""
    seen = set()
    with open_checkpoint(path) as checkpoint:
        for name, info in checkpoint.tensors.items():
            kind = name.split(".")[-2]
            if len(info.shape) == 2 and kind not in seen and info.shape[1] % 32 == 0:
                seen.add(kind)
                values = checkpoint.rows(name, range(min(rows, info.shape[0])))
                yield name, values.astype(np.float16).astype(np.float32)


def peer(python: str, values: Floats, types: list[TensorType]) -> dict[TensorType, Floats]:
    """ggml's values, restored."""
    with tempfile.TemporaryDirectory() as scratch:
        rows, out = Path(scratch, "rows.npy"), Path(scratch, "out.npz")
        np.save(rows, values)
        command = [python, str(WORKER), str(rows), str(out), *(t.name for t in types)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: ggml: {done.stderr.strip().splitlines()[-1]}")
        found = np.load(out)
        return {t: dequantize(found[t.name], t, values.shape) for t in types}


def error(values: Floats, restored: Floats) -> float:
    lost = (values - restored).astype(np.float64)
    return float(np.sqrt(np.mean(lost**2) / np.mean(values.astype(np.float64) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--peer-python", metavar="PYTHON", required=True)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    path = resolve(given.model, progress=TerminalProgress())
    result: dict[str, dict[str, tuple[float, float]]] = {}
    seconds = {t: [0.0, 0] for t in TYPES}
    print(f"{'ours / ggml':26}" + "".join(f"{t.name:>8}" for t in TYPES))
    for name, values in [*random_tensors(given.rows), *model_tensors(path, given.rows)]:
        types = [t for t in TYPES if values.shape[1] % layout(t).elements == 0]
        theirs = peer(given.peer_python, values, types)
        row = {}
        for type in types:
            begin = time.process_time()
            raw = quantize(values, type)
            seconds[type][0] += time.process_time() - begin
            seconds[type][1] += values.size
            ours = dequantize(raw, type, values.shape)
            row[type.name] = (error(values, ours), error(values, theirs[type]))
        result[name] = row
        print(f"{name:26}" + "".join(_cell(row.get(t.name)) for t in TYPES))
    speeds = (1e9 * spent / done for spent, done in seconds.values())
    print(f"{'ns of a core per weight':26}" + "".join(f"{speed:8.0f}" for speed in speeds))
    if given.json:
        given.json.write_text(json.dumps({"model": path.name, "errors": result}, indent=1) + "\n")
    above = [
        f"{name} {type}"
        for name, row in result.items()
        for type, (ours, theirs) in row.items()
        if ours > _EQUAL * theirs
    ]
    if above:
        sys.exit(f"above ggml's: {', '.join(above)}")


def _cell(errors: tuple[float, float] | None) -> str:
    if errors is None:
        return f"{'-':>8}"
    ours, theirs = errors
    return f"{ours / theirs if theirs else float(ours > 0):8.4f}"


if __name__ == "__main__":
    main()
