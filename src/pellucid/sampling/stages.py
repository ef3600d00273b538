"""The stages that change scores, each on one row in place.

A row is float64 [vocabulary]; a banned token's score is -inf.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pellucid.core.params import MAX_BIAS
from pellucid.sampling.history import History

Row = NDArray[np.float64]


def add_bias(row: Row, bias: Mapping[int, float]) -> None:
    """score += bias; at -100 the token is banned, at 100 every token without it is."""
    if not bias:
        return
    ids = np.fromiter(bias.keys(), np.int64, len(bias))
    values = np.fromiter(bias.values(), np.float64, len(bias))
    forced = ids[values == MAX_BIAS]
    row[ids] += np.where(values == -MAX_BIAS, -np.inf, values)
    if len(forced):
        kept = row[forced]
        row.fill(-np.inf)
        row[forced] = kept


def penalise(
    row: Row, history: History, repetition: float, frequency: float, presence: float
) -> None:
    """Make tokens that are there already less likely, or with values below 1 or 0 more.

    repetition: the score of any token in prompt or answer is divided by it if positive, else
    multiplied by it (Keskar et al. 2019). Then frequency, once for each time a token stands in
    the answer, and presence, once if it does, are subtracted (OpenAI).
    """
    if repetition != 1.0:
        ids = history.seen()
        scores = row[ids]
        row[ids] = np.where(scores > 0, scores / repetition, scores * repetition)
    if frequency != 0.0 or presence != 0.0:
        ids, counts = history.output()
        row[ids] -= frequency * counts + presence


def apply_temperature(row: Row, temperature: float) -> Row:
    """(score - largest) / temperature: never above 0, however small the temperature."""
    with np.errstate(over="ignore"):  # far below the largest: -inf is right
        return np.asarray((row - row.max()) / temperature, np.float64)
