"""Spread: a figure measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and most of several measurements, which `values` lists in their order."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Raises `ValueError` for no values."""
        kept = tuple(values)
        if not kept:
            raise ValueError("a spread of no measurements")
        return cls(kept)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def to_json(self) -> dict[str, object]:
        return {
            "median": self.median,
            "min": self.low,
            "max": self.high,
            "values": list(self.values),
        }
