"""Speed of matrix products at a model's shapes, beside what the machine can do at best.

    python bench/matmul.py [--threads 1 2] [--simd avx2] [--bf16] [--only Q8_0] [--json FILE]

One row: GB/s of weights read, from as many copies of the weight as pass the caches (--memory MB).
More rows: GOP/s, a multiply and an add being two. Each figure is the best of many passes; a plain
read and 8-bit arithmetic in registers are measured on the same threads just before each shape.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pellucid import _native
from pellucid.quant.types import LAYOUTS, TensorType, byte_count

# Activations as a weight wants them.
FORMS = {
    "int8": _native.matmul.QuantizedRows,
    "bf16": _native.matmul.Bf16Rows,
    "f32": lambda x, _: x,
}
ROWS = (2, 4, 8, 16, 32, 128, 512)
# (type, outputs, inputs): SmolLM2-135M and Qwen2.5-0.5B, and the types that neither has.
SHAPES = [
    ("Q4_1", 576, 576),
    ("Q4_1", 192, 576),
    ("Q4_1", 1536, 576),
    ("Q4_1", 576, 1536),
    ("Q8_0", 49152, 576),
    ("Q4_0", 1536, 576),
    ("Q5_0", 4864, 896),
    ("Q5_0", 896, 896),
    ("Q4_K", 896, 4864),
    ("Q6_K", 896, 4864),
    ("Q8_0", 151936, 896),
    ("Q5_1", 1536, 576),
    ("Q5_K", 896, 4864),
    ("F16", 1536, 576),
    ("BF16", 1536, 576),
    ("F32", 1536, 576),
]


@dataclass
class Result:
    type: str
    n_out: int
    k: int
    threads: int
    simd: str
    read_gb_s: float  # a plain read
    int8_gop_s: float  # arithmetic in registers
    one_row_gb_s: float
    gop_s: dict[int, float]  # by rows


def random_weight(type: TensorType, n_out: int, k: int) -> npt.NDArray[np.uint8]:
    """Bytes of a tensor whose scales are small and finite."""
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, byte_count(type, (n_out, k)), dtype=np.uint8)
    fields = raw.view(LAYOUTS[type].dtype)
    for name in {"d", "m", "dmin", "x"} & set(LAYOUTS[type].dtype.names or ()):
        # Exponents near one, so that no arithmetic is on the slow path of tiny numbers.
        fields[name] = 0x3F80 if fields[name].dtype.kind == "u" else 0.01
    return raw


def best_seconds(weights: list[object], x: object, threads: int, seconds: float) -> float:
    """Of one product: the best pass of as many as take about `seconds`."""
    warm = min(_native.matmul.time_products(weights, x, threads, 2))
    passes = max(3, int(seconds / warm))
    return min(_native.matmul.time_products(weights, x, threads, passes)) / len(weights)


def measure(name: str, n_out: int, k: int, threads: int, args: argparse.Namespace) -> Result:
    type, arena = TensorType[name], _native.matmul.Arena()
    raw = random_weight(type, n_out, k)
    pool = _native.program.Pool(threads)
    bf16 = args.bf16 and _native.matmul.prefers_bf16(int(type), args.simd)
    first = _native.matmul.pack(int(type), raw, n_out, k, args.simd, arena, bf16)
    copies = max(1, (args.memory << 20) // first.nbytes)
    weights = [first] + [
        _native.matmul.pack(int(type), raw, n_out, k, args.simd, arena, bf16)
        for _ in range(copies - 1)
    ]
    read = max(_native.peaks.reads(pool, args.memory << 20, 5, args.simd))
    int8 = max(_native.peaks.int8(pool, 10_000, 100, args.simd))

    def rows(count: int) -> object:
        x = np.random.default_rng(1).standard_normal((count, k), dtype=np.float32)
        return FORMS[first.activations](x, args.simd)

    one = first.nbytes / best_seconds(weights, rows(1), threads, args.seconds)
    gop_s = {
        count: 2e-9 * n_out * k * count / best_seconds([first], rows(count), threads, args.seconds)
        for count in ROWS
        if n_out * count <= args.largest
    }
    return Result(name, n_out, k, threads, first.simd, read * 1e-9, int8 * 1e-9, one * 1e-9, gop_s)


def show(result: Result) -> None:
    print(
        f"{result.type:5}{result.n_out:>7} x{result.k:<5} {result.threads} thr"
        f"  read {result.read_gb_s:5.1f} GB/s  1 row {result.one_row_gb_s:5.1f} GB/s"
        f"  int8 {result.int8_gop_s:6.0f} GOP/s  "
        + "  ".join(f"{rows}: {rate:.0f}" for rows, rate in result.gop_s.items()),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--simd", default="", help="an instruction set; default: the best here")
    parser.add_argument(
        "--bf16", action="store_true", help="products of bfloat16 where there are some"
    )
    parser.add_argument("--only", help="one type")
    parser.add_argument("--memory", type=int, default=256, help="MB of weights read in turn")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each figure")
    parser.add_argument("--largest", type=int, default=1 << 23, help="values of an output")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = []
    for name, n_out, k in SHAPES:
        if args.only in (None, name):
            for threads in args.threads:
                results.append(measure(name, n_out, k, threads, args))
                show(results[-1])
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
