"""Funnel: the stages of one choice, each with what it left: what `Sampler` does, shown."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.sampling.filters import candidates, highest
from pellucid.sampling.sampler import Draw, Sampler
from pellucid.sampling.stages import Row, add_bias, apply_temperature, penalise

Float32 = NDArray[np.float32]


class Sieve(NamedTuple):
    """After a stage: how many tokens may still be chosen, and the likeliest with their share."""

    name: str
    left: int
    top: tuple[tuple[int, float], ...]


class Funnel(NamedTuple):
    """The stages in their order, and the token that was drawn at the end."""

    stages: tuple[Sieve, ...]
    drawn: int


def funnel(sampler: Sampler, logits: Float32, draw: Draw, count: int) -> Funnel:
    """The choice from one row of logits, float32 [vocabulary]; of each stage the `count` likeliest.

    What may not be chosen (padding, a mask, ends that come too early) is banned with the penalties.
    Raises as `Sampler.choose`.
    """
    drawn = sampler.choose(logits, draw).token_id
    params = draw.params
    row = logits.astype(np.float64)
    if sampler.not_tokens is not None:
        row[sampler.not_tokens] = -np.inf
    stages = [_sieve("logits", row, count)]
    sampler.ban(row, draw)
    add_bias(row, params.logit_bias)
    penalise(
        row,
        draw.history,
        params.repetition_penalty,
        params.frequency_penalty,
        params.presence_penalty,
    )
    stages.append(_sieve("penalties", row, count))
    if not params.greedy:
        row = apply_temperature(row, params.temperature)
        stages.append(_sieve("temperature", row, count))
        given = ("min_p", params.min_p), ("top_k", params.top_k), ("top_p", params.top_p)
        filters = {"min_p": 0.0, "top_k": 0, "top_p": 1.0}
        for name, value in given:
            filters[name] = value
            ids = candidates(row, filters["min_p"], int(filters["top_k"]), filters["top_p"])
            stages.append(_sieve(name, _only(row, ids), count))
    stages.append(Sieve("draw", 1, ((drawn, 1.0),)))
    return Funnel(tuple(stages), drawn)


def _only(row: Row, ids: NDArray[np.int64]) -> Row:
    kept = np.full_like(row, -np.inf)
    kept[ids] = row[ids]
    return kept


def _sieve(name: str, row: Row, count: int) -> Sieve:
    left = int(np.count_nonzero(row > -np.inf))
    if not left:
        return Sieve(name, 0, ())
    weights = np.exp(row - row.max())
    shares = weights / weights.sum()
    top = highest(row, min(count, left))
    return Sieve(name, left, tuple([(int(i), float(shares[i])) for i in top]))
