"""What each type of the KV cache costs and gains on one model: quality, speed, memory.

    python bench/kv_types.py [MODEL] [--types f16,int8,int4] [--context 4000] [--json FILE]

Perplexity and mean divergence of the next token over a fixed text, against f16 keys and values of
the same backend, with the standard error of the change; decode of one sequence at a long context,
all types in turn in every round; positions that a GiB holds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid import LLM
from pellucid.core.plan import Plan, Span
from pellucid.costs import NATIVE_LANES, kv_bytes_per_token
from pellucid.formats import open_checkpoint
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.models.key_statistics import with_key_prior
from pellucid.models.registry import Model, load_model, read_spec
from pellucid.ops.native import NativeOps

TEXT = Path(__file__).resolve().parent / "data" / "quality.txt"
PAGE = 16
_ROWS = 64

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass
class Result:
    """Of one type, against f16."""

    perplexity: float
    change: float  # of perplexity, relative
    change_error: float  # standard error of that
    divergence: float  # mean, in nats
    divergence_p99: float
    decode: list[float]  # tokens a second, by round
    decode_ratio: list[float]  # to f16's of the same round
    positions_per_gib: int


def scores(path: Path, dtype: str, n_tokens: int, threads: int) -> tuple[list[Float32], Float64]:
    """Log-probabilities of every position in pieces, and the losses of the text's own tokens."""
    options: dict[str, Any] = {"max_num_seqs": 1, "threads": threads, "kv_cache_dtype": dtype}
    with LLM(path, max_model_len=n_tokens + 1, **options) as llm:
        ids = list(llm.tokenizer.encode(TEXT.read_text(encoding="utf-8")))[:n_tokens]
        if len(ids) < n_tokens:
            sys.exit(f"error: the text has {len(ids)} tokens for this model: lower --tokens")
        logits = llm.logits(ids)
    pieces, losses = [], []
    for start in range(0, len(ids), _ROWS):
        x = logits[start : start + _ROWS]
        x = x - x.max(axis=1, keepdims=True)
        x -= np.log(np.exp(x).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
        following = ids[start + 1 : start + 1 + len(x)]
        losses.append(-x[np.arange(len(following)), following].astype(np.float64))
        pieces.append(x)
    return pieces, np.concatenate(losses)


def divergences(reference: list[Float32], other: list[Float32]) -> Float64:
    pairs = zip(reference, other, strict=True)
    return np.concatenate([(np.exp(p) * (p - q)).sum(axis=1, dtype=np.float64) for p, q in pairs])


class Decoder:
    """One sequence of one model and type, `context` positions long."""

    def __init__(self, path: Path, dtype: str, context: int, threads: int) -> None:
        with open_checkpoint(path) as checkpoint:
            model = load_model(checkpoint, NativeOps(threads=threads, kv_dtype=dtype))
        # As an engine's model has it; what it knows does not change its speed.
        tokens = [(7 * i) % model.spec.vocab_size for i in range(128)]
        self._model: Model = with_key_prior(model, tokens)
        self._context = context
        n_pages = -(-(context + 1) // PAGE)
        self._cache = self._model.ops.new_cache(self._model.spec, n_pages, PAGE)
        self._pages = tuple(range(n_pages))
        for start in range(0, context, 512):
            self._step(start, min(512, context - start))

    def rate(self, steps: int) -> float:
        """Tokens a second, the median step."""
        return 1 / statistics.median(self._step(self._context, 1) for _ in range(steps))

    def _step(self, start: int, length: int) -> float:
        vocabulary = self._model.spec.vocab_size
        tokens = tuple((7 * i) % vocabulary for i in range(start, start + length))
        plan = Plan((Span(0, start, tokens, self._pages, 1),), PAGE)
        begin = time.perf_counter()
        self._model.forward(plan, self._cache)
        return time.perf_counter() - begin


def measure(path: Path, given: argparse.Namespace) -> dict[str, Result]:
    types = list(dict.fromkeys(("f16", *given.types.split(","))))
    found: dict[str, Result] = {}
    reference: list[Float32] = []
    base = np.empty(0)
    with open_checkpoint(path) as checkpoint:
        spec = read_spec(checkpoint)[1]
    for dtype in types:
        pieces, losses = scores(path, dtype, given.tokens, given.threads)
        if not reference:
            reference, base = pieces, losses
        more, kl = losses - base, divergences(reference, pieces)
        found[dtype] = Result(
            float(np.exp(losses.mean())),
            float(np.expm1(more.mean())),
            float(more.std() / np.sqrt(len(more))),
            float(kl.mean()),
            float(np.quantile(kl, 0.99)),
            [],
            [],
            (1 << 30) // kv_bytes_per_token(spec, dtype, NATIVE_LANES),
        )
        print(f"scored with {dtype}", file=sys.stderr)
    if given.rounds:
        decoders = {t: Decoder(path, t, given.context, given.threads) for t in types}
        for _ in range(given.rounds):
            for dtype, decoder in decoders.items():
                found[dtype].decode.append(decoder.rate(given.steps))
                found[dtype].decode_ratio.append(found[dtype].decode[-1] / found["f16"].decode[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--types", default="f32,int8,int4,int8/int4")
    parser.add_argument("--tokens", type=int, default=1900)
    parser.add_argument("--context", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5, help="of decoding; 0: none")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    path = resolve(given.model, progress=TerminalProgress())
    found = measure(path, given)
    print(f"{path.name}: {given.tokens} tokens of text; decode at {given.context}")
    print(
        f"  {'':10} {'perplexity':>11} {'against f16':>18} {'mean KL':>9} {'99 %':>9} "
        f"{'tokens/s':>9} {'against f16':>20} {'positions/GiB':>14}"
    )
    for dtype, r in found.items():
        change = f"{r.change:+.3%} +- {r.change_error:.3%}"
        speed, ratio = "-", "-"
        if r.decode:
            speed = f"{statistics.median(r.decode):.1f}"
            low, high = min(r.decode_ratio), max(r.decode_ratio)
            ratio = f"{statistics.median(r.decode_ratio):.2f} ({low:.2f} - {high:.2f})"
        print(
            f"  {dtype:10} {r.perplexity:11.4f} {change:>18} {r.divergence:9.2e} "
            f"{r.divergence_p99:9.2e} {speed:>9} {ratio:>20} {r.positions_per_gib:14,}"
        )
    if given.json:
        types = {dtype: asdict(r) for dtype, r in found.items()}
        given.json.write_text(json.dumps({"model": path.name, "types": types}, indent=1) + "\n")


if __name__ == "__main__":
    main()
