"""Numbers as people read them; the terminal and the page say them alike."""

from __future__ import annotations


def seconds(value: float) -> str:
    """1.5 s, 13.8 ms, 92 µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def count(number: float) -> str:
    """134.5 M"""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.4g}"


def billions(number: int) -> str:
    """A number of weights: 134.5 M, 70.55 B."""
    return count(number).replace("G", "B")


def probability(share: float) -> str:
    """25.7%, or 3e-06 where a percentage shows nothing."""
    return f"{share:.1%}" if share >= 0.0005 or share == 0 else f"{share:.0e}"


def size(n_bytes: float) -> str:
    """Bytes in powers of 1000: 98.4 MB."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1000
    return f"{value:.4g} TB"
