"""How far our quantised files are from their source, and llama.cpp's of the same types.

    python bench/quantized_models.py MODEL --peer-python PYTHON --text FILE [--types q8_0,...]

MODEL in half precision; one that is quantised is restored to that first, and what it lost before
counts for neither. Both quantisers write a file of each type from the same source; our native
backend runs both. Divergence of the next token from the source's, in nats, and ours over theirs
with its 95 % interval on the same draws. The exit code is 1 if an interval is above 1 altogether.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.convert.folder import folder_source
from pellucid.convert.source import gguf_source
from pellucid.convert.write import choose, write_quantized
from pellucid.formats import open_checkpoint
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.quality import Settings, Subject, Text
from pellucid.quality.divergence import PerToken
from pellucid.quality.intervals import DRAWS, LEVEL, Bootstrap
from pellucid.quality.run import Reading
from pellucid.quality.scores import Spool
from pellucid.quality.subjects import Common, check
from pellucid.quant.mixes import mix_named

WORKER = Path(__file__).resolve().parent / "peers" / "requantize_llama_cpp.py"
TYPES = "q8_0,q6_k,q5_k_m,q5_k_s,q5_1,q5_0,q4_k_m,q4_k_s,q4_1,q4_0"

Float64 = NDArray[np.float64]


def ours(source: Path, target: Path, type: str, threads: int) -> None:
    """`source` as `pellucid quantize` writes it."""
    mix = mix_named(type)
    with open_checkpoint(source) as checkpoint:
        model = (gguf_source if checkpoint.kind == "gguf" else folder_source)(checkpoint)
        choices = choose(model, mix, pure=False, requantize=True)
        write_quantized(model, choices, mix, target, threads=threads)


def llama_cpp(python: str, source: Path, target: Path, type: str) -> None:
    done = subprocess.run(
        [python, str(WORKER), str(source), str(target), type], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"error: llama.cpp: {done.stderr.strip().splitlines()[-1]}")


def types_that_differ(one: Path, other: Path) -> list[str]:
    """Tensors that have another type in one file than in the other."""
    with open_checkpoint(one) as a, open_checkpoint(other) as b:
        return [name for name, info in a.tensors.items() if info.type != b.tensors[name].type]


def ratio(ours: Float64, theirs: Float64) -> dict[str, float]:
    """The ratio of their means with its interval, both drawn alike."""
    bootstrap = Bootstrap(len(ours))
    a, b = (bootstrap.drawn_means(each) for each in (ours, theirs))
    low, high = np.quantile(a / b, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": float(ours.mean() / theirs.mean()), "low": float(low), "high": float(high)}


class Reader:
    """Reads the text with the source once, and then with whatever file."""

    def __init__(self, source: Path, text: Text, given: argparse.Namespace) -> None:
        self._settings = Settings(tokens=given.tokens, threads=given.threads, repeats=0)
        subject = Subject("source", source)
        self._common: Common = check([subject], text, given.tokens, None, False)
        self._spool = Spool(len(self._common.ids) - 1, self._common.width)
        self._first: PerToken = self._read(subject, None)

    def divergence(self, name: str, path: Path) -> Float64:
        """From the source, of each token [n]."""
        found = self._read(Subject(name, path), self._first).divergence
        assert found is not None
        return found

    def _read(self, subject: Subject, first: PerToken | None) -> PerToken:
        reading = Reading(subject, self._settings, self._common, _silent, plain=False)
        try:
            return reading.text(self._spool, first)
        finally:
            reading.close()


def measure(source: Path, scratch: Path, given: argparse.Namespace) -> dict[str, Any]:
    text = Text(given.text.name, given.text.read_text(encoding="utf-8"))
    reader = Reader(source, text, given)
    found: dict[str, Any] = {}
    for type in given.types.split(","):
        files = {maker: scratch / f"{maker}-{type}.gguf" for maker in ("ours", "theirs")}
        ours(source, files["ours"], type, given.threads)
        llama_cpp(given.peer_python, source, files["theirs"], type)
        differ = types_that_differ(files["ours"], files["theirs"])
        if differ:
            sys.exit(f"error: {type}: other types than llama.cpp's: {', '.join(differ[:4])}")
        each = {maker: reader.divergence(maker, path) for maker, path in files.items()}
        of_type = {maker: float(values.mean()) for maker, values in each.items()}
        found[type] = {**of_type, "ratio": ratio(each["ours"], each["theirs"])}
        _say(type, found[type])
        for path in files.values():
            path.unlink()
    return found


def _say(type: str, found: dict[str, Any]) -> None:
    r = found["ratio"]
    print(
        f"{type:8} ours {found['ours']:.5f}  llama.cpp {found['theirs']:.5f}  "
        f"ratio {r['value']:.3f} ({r['low']:.3f} to {r['high']:.3f})",
        flush=True,
    )


def _silent(label: str, done: int, total: int) -> None:
    del label, done, total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--peer-python", metavar="PYTHON", required=True)
    parser.add_argument("--text", type=Path, metavar="FILE", required=True)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    path = resolve(given.model, progress=TerminalProgress())
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source.gguf")
        ours(path, source, "f16", given.threads)
        found = measure(source, Path(scratch), given)
    if given.json:
        about = {"model": path.name, "text": given.text.name, "tokens": given.tokens}
        intervals = {"level": LEVEL, "draws": DRAWS}
        result = {**about, "intervals": intervals, "types": found}
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    worse = [type for type, one in found.items() if one["ratio"]["low"] > 1]
    if worse:
        sys.exit(f"further from the source than llama.cpp's: {', '.join(worse)}")


if __name__ == "__main__":
    main()
