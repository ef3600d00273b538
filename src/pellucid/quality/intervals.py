"""Confidence intervals by the bootstrap over blocks of a text (Künsch 1989, Efron 1979).

Neighbouring tokens are alike in how hard they are, so what is drawn again, with replacement, are
blocks of neighbours. An interval is what 95 % of the draws give. It speaks of other texts like this
one, and not of other kinds of text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

BLOCK = 32  # tokens
MIN_BLOCKS = 8  # fewer say nothing about how blocks differ
DRAWS = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


class Bootstrap:
    """The same draws for every figure of a text of `n` tokens, and for every model: what is
    compared is compared on the same draws, and a second run gives the same intervals.

    Raises `ValueError` for fewer than `MIN_BLOCKS` blocks.
    """

    def __init__(self, n: int) -> None:
        if n < BLOCK * MIN_BLOCKS:
            raise ValueError(f"{n} tokens are fewer than {MIN_BLOCKS} blocks of {BLOCK}")
        self._edges = np.linspace(0, n, n // BLOCK + 1).round().astype(np.int64)
        blocks = len(self._edges) - 1
        self._drawn = np.random.default_rng(0).integers(0, blocks, (DRAWS, blocks))

    def mean(self, each: Float64, then: Callable[[Float64], Float64] | None = None) -> Figure:
        """The mean of a value of every token [n], or what `then` makes of it."""
        means, value = self.drawn_means(each), np.asarray(each.mean())
        return self._figure(*((value, means) if then is None else (then(value), then(means))))

    def drawn_means(self, each: Float64) -> Float64:
        """The mean in every draw, [DRAWS]."""
        sums = np.add.reduceat(each, self._edges[:-1])
        counts = np.diff(self._edges)
        means: Float64 = sums[self._drawn].sum(axis=1) / counts[self._drawn].sum(axis=1)
        return means

    def quantile(self, each: Float64, share: float) -> Figure:
        """The value that `share` of all tokens are not above."""
        blocks = np.split(each, self._edges[1:-1])
        draws = [np.concatenate([blocks[b] for b in drawn]) for drawn in self._drawn]
        quantiles = np.array([np.quantile(draw, share) for draw in draws])
        return self._figure(np.asarray(np.quantile(each, share)), quantiles)

    @staticmethod
    def _figure(value: Float64, draws: Float64) -> Figure:
        low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Figure(float(value), float(low), float(high))
