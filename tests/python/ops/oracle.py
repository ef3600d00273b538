"""Each operation once more, in plain Python on lists of floats: slow, and nothing shared with
what is tested. Rows are lists; weights are lists of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

Row = Sequence[float]
Matrix = Sequence[Row]


def dot(a: Row, b: Row) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def linear(row: Row, weight: Matrix, bias: Row | None = None) -> list[float]:
    return [dot(row, w) + (bias[i] if bias is not None else 0.0) for i, w in enumerate(weight)]


def softmax(row: Row) -> list[float]:
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    return [p / math.fsum(powers) for p in powers]


def layer_norm(row: Row, weight: Row, bias: Row | None, eps: float) -> list[float]:
    mean = math.fsum(row) / len(row)
    variance = math.fsum((x - mean) ** 2 for x in row) / len(row)
    return [
        (x - mean) / math.sqrt(variance + eps) * w + (bias[i] if bias is not None else 0.0)
        for i, (x, w) in enumerate(zip(row, weight, strict=True))
    ]


def rms_norm(row: Row, weight: Row, eps: float) -> list[float]:
    out: list[float] = []
    for start in range(0, len(row), len(weight)):
        run = row[start : start + len(weight)]
        mean_square = math.fsum(x * x for x in run) / len(run)
        out += [x / math.sqrt(mean_square + eps) * w for x, w in zip(run, weight, strict=True)]
    return out


def silu(x: float) -> float:
    return x / (1.0 + math.exp(-x)) if x > -700 else 0.0


def gelu(x: float) -> float:
    return x * 0.5 * math.erfc(-x / math.sqrt(2.0))


def gelu_tanh(x: float) -> float:
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def swiglu(row: Row, gate: Matrix, up: Matrix, down: Matrix) -> list[float]:
    hidden = [silu(g) * u for g, u in zip(linear(row, gate), linear(row, up), strict=True)]
    return linear(hidden, down)


def experts(
    row: Row,
    router_logits: Row,
    gate: Sequence[Matrix],
    up: Sequence[Matrix],
    down: Sequence[Matrix],
    used: int,
    normalize: bool,
) -> list[float]:
    shares = softmax(router_logits)
    chosen = sorted(range(len(shares)), key=lambda e: (-shares[e], e))[:used]
    total = math.fsum(shares[e] for e in chosen) if normalize else 1.0
    parts = [swiglu(row, gate[e], up[e], down[e]) for e in chosen]
    return [
        math.fsum(shares[e] / total * part[i] for e, part in zip(chosen, parts, strict=True))
        for i in range(len(row))
    ]


def rope(
    row: Row,
    position: int,
    head_dim: int,
    frequencies: Row,
    *,
    interleaved: bool = False,
    factor: float = 1.0,
) -> list[float]:
    """Pair i of each head turned by position * frequencies[i], and stretched by `factor`."""
    out = list(row)
    half = len(frequencies)
    for start in range(0, len(row), head_dim):
        for i, frequency in enumerate(frequencies):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
            cos, sin = math.cos(position * frequency), math.sin(position * frequency)
            x, y = row[start + a], row[start + b]
            out[start + a] = factor * (x * cos - y * sin)
            out[start + b] = factor * (y * cos + x * sin)
    return out


def attention(
    q: Matrix,
    k: Matrix,
    v: Matrix,
    *,
    n_heads: int,
    n_kv_heads: int,
    scale: float,
    window: int | None = None,
    slopes: Row = (),
    cap: float | None = None,
) -> list[list[float]]:
    """Causal attention of one sequence; q, k, v row by row from position 0."""
    head_dim = len(q[0]) // n_heads
    out = []
    for i, query in enumerate(q):
        row: list[float] = []
        for h in range(n_heads):
            kv = h // (n_heads // n_kv_heads)
            mine = query[h * head_dim : (h + 1) * head_dim]
            seen = [j for j in range(i + 1) if window is None or j > i - window]
            theirs = slice(kv * head_dim, (kv + 1) * head_dim)
            scores = [scale * dot(mine, k[j][theirs]) for j in seen]
            if cap is not None:
                scores = [cap * math.tanh(s / cap) for s in scores]
            if slopes:
                scores = [s + slopes[h] * (j - i) for s, j in zip(scores, seen, strict=True)]
            shares = softmax(scores)
            row += [
                math.fsum(s * v[j][kv * head_dim + f] for s, j in zip(shares, seen, strict=True))
                for f in range(head_dim)
            ]
        out.append(row)
    return out
