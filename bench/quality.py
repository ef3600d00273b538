"""How far the native backend's distributions are from the float32 reference, and llama.cpp's from
the same reference on the same file.

    python bench/quality.py [MODEL] --peer-python PYTHON [--json FILE]

Mean Kullback-Leibler divergence of the next token over every position of a fixed text, the text's
perplexity, and how often the likeliest token is the same. The exit code is 1 if the native backend
diverges more than llama.cpp, or its perplexity is more than 0.5 % from the reference's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid import LLM
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve

HERE = Path(__file__).resolve().parent
TEXT = HERE / "data" / "quality.txt"
PERPLEXITY_BOUND = 0.005
_ROWS = 64  # at a time, so that float64 copies stay small

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of one engine from the reference, in nats; over all positions of a text."""

    mean: float
    median: float
    p99: float
    largest: float
    perplexity: float
    perplexity_of_reference: float
    same_likeliest: float

    @property
    def perplexity_change(self) -> float:
        return self.perplexity / self.perplexity_of_reference - 1


def divergence(reference: Float32, other: Float32, ids: list[int]) -> Divergence:
    """Both are scores [len(ids), vocabulary]; row i scores what follows ids[i].

    KL(reference || other) of each row. Raises `ValueError` for other shapes, or fewer than two ids.
    """
    if reference.shape != other.shape or len(ids) != len(reference) or len(ids) < 2:
        raise ValueError(f"{len(ids)} ids, scores {reference.shape} and {other.shape}")
    divergences: list[Float64] = []
    likelihoods: list[tuple[Float64, Float64]] = []
    same = 0
    for start in range(0, len(ids), _ROWS):
        p, q = (_log_softmax(scores[start : start + _ROWS]) for scores in (reference, other))
        divergences.append(np.sum(np.exp(p) * (p - q), axis=1))
        same += int(np.count_nonzero(p.argmax(axis=1) == q.argmax(axis=1)))
        following = ids[start + 1 : start + 1 + _ROWS]
        rows = np.arange(len(following))
        likelihoods.append((p[rows, following], q[rows, following]))
    each = np.concatenate(divergences)
    of_reference, of_other = (
        float(np.exp(-np.concatenate(parts).mean())) for parts in zip(*likelihoods, strict=True)
    )
    return Divergence(
        mean=float(each.mean()),
        median=float(np.median(each)),
        p99=float(np.quantile(each, 0.99)),
        largest=float(each.max()),
        perplexity=of_other,
        perplexity_of_reference=of_reference,
        same_likeliest=same / len(ids),
    )


def _log_softmax(scores: Float32) -> Float64:
    shifted = scores.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def ours(path: Path, ids: list[int], **options: Any) -> Float32:
    """Scores of every position by one of our backends."""
    with LLM(path, max_model_len=len(ids) + 1, max_num_seqs=1, **options) as llm:
        return llm.logits(ids)


def llama_cpp(python: str, path: Path, ids: list[int], threads: int, scratch: Path) -> Float32:
    """Scores of every position by llama.cpp, in a process of its own."""
    ids_path, out = scratch / "ids.json", scratch / "llama_cpp.npy"
    ids_path.write_text(json.dumps(ids))
    script = HERE / "peers" / "logits_llama_cpp.py"
    command = [python, str(script), str(path), str(ids_path), str(out), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: llama.cpp: {done.stderr.strip().splitlines()[-1]}")
    scores: Float32 = np.load(out, mmap_mode="r")
    return scores


def measure(path: Path, given: argparse.Namespace) -> dict[str, Divergence]:
    """Engine -> its divergence, in the order they are shown."""
    ids = _ids(path, given.tokens)
    _say("reference: float32, every weight dequantised")
    reference = ours(path, ids, backend="reference")
    found: dict[str, Divergence] = {}
    for kv_dtype in ("f16", "f32"):
        _say(f"native, KV cache {kv_dtype}")
        options = {"backend": "native", "threads": given.threads, "kv_cache_dtype": kv_dtype}
        scores = ours(path, ids, **options)
        found[f"native, KV {kv_dtype}"] = divergence(reference, scores, ids)
    if given.peer_python:
        _say("llama.cpp")
        with tempfile.TemporaryDirectory() as scratch:
            scores = llama_cpp(given.peer_python, path, ids, given.threads, Path(scratch))
            found["llama.cpp"] = divergence(reference, scores, ids)
    return found


def _ids(path: Path, n: int) -> list[int]:
    with LLM(path, backend="reference", max_model_len=16, max_num_seqs=1) as llm:
        ids = list(llm.tokenizer.encode(TEXT.read_text(encoding="utf-8")))
    if len(ids) < n:
        sys.exit(f"error: the text has {len(ids)} tokens for this model: lower --tokens {n}")
    return ids[:n]


def misses(found: dict[str, Divergence]) -> list[str]:
    """What of the requirement is not met, in words."""
    native = found["native, KV f16"]
    missed = []
    if "llama.cpp" in found and native.mean > found["llama.cpp"].mean:
        missed.append(
            f"the native backend diverges by {native.mean:.3g}, llama.cpp by "
            f"{found['llama.cpp'].mean:.3g}"
        )
    if abs(native.perplexity_change) > PERPLEXITY_BOUND:
        missed.append(f"its perplexity is {native.perplexity_change:+.2%} from the reference's")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--peer-python", metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    path = resolve(given.model, progress=TerminalProgress())
    found = measure(path, given)
    print(f"{path.name}, {given.tokens} tokens")
    print(
        f"  {'':16} {'mean KL':>10} {'median':>10} {'99 %':>10} {'perplexity':>21} {'same top':>9}"
    )
    for engine, d in found.items():
        change = f"{d.perplexity:.4f} ({d.perplexity_change:+.3%})"
        figures = f"{d.mean:10.2e} {d.median:10.2e} {d.p99:10.2e}"
        print(f"  {engine:16} {figures} {change:>21} {d.same_likeliest:9.2%}")
    if given.json:
        engines = {engine: asdict(d) for engine, d in found.items()}
        result = {"model": path.name, "tokens": given.tokens, "engines": engines}
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    missed = misses(found)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
