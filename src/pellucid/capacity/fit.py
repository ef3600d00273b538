"""From measured steps to a cost model: few terms, none negative, and how far it is off."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pellucid.capacity.least_squares import Float64, non_negative
from pellucid.capacity.observe import Observed, Step, median
from pellucid.core.errors import PellucidError
from pellucid.core.spec import ModelSpec
from pellucid.simulate.pace import Pace
from pellucid.simulate.setup import Path
from pellucid.simulate.times import Fitted, Windows, features

_LEAST_STEPS: Final = 60
_ROUNDS: Final = 6  # of reweighting; a fit of this size settles in three
_FAR: Final = 0.15  # residuals beyond are noise, and pull with constant force (Huber 1964)


@dataclass(frozen=True, slots=True)
class Error:
    """How far a model is off steps that its fit did not see: a step's in the median, and a phase's
    whole time in the median and at worst. Shares of what was measured."""

    step: float
    phase: float
    worst_phase: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Seconds of each of `pellucid.simulate.times.TERMS`, the machine's pace meanwhile, what is
    added beside steps, and how far it is off. steps: how many were measured, in `seconds`."""

    seconds_each: tuple[float, ...]
    pace: Pace
    path: Path
    error: Error
    steps: int
    seconds: float

    def times(self, spec: ModelSpec) -> Fitted:
        return Fitted(spec, self.seconds_each)


def fit(spec: ModelSpec, observed: Observed) -> Calibration:
    """Raises `PellucidError` for a sweep of too few steps."""
    steps = observed.steps
    if len(steps) < _LEAST_STEPS:
        raise PellucidError(f"{len(steps)} steps were measured, and {_LEAST_STEPS} are needed")
    a, t = _matrix(spec, steps), np.array([step.seconds for step in steps])
    each = _terms(a, t)
    like_traffic = np.array([step.phase in observed.mixed for step in steps])
    took, modelled = t[like_traffic], a[like_traffic] @ each
    each = each * float(took.sum() / modelled.sum())
    return Calibration(
        tuple(map(float, each)),
        Pace.of(zip(map(float, took), map(float, modelled), strict=True)),
        Path(median(observed.before), 0.0, median(observed.after)),
        _error(a, t, steps),
        len(steps),
        float(t.sum()),
    )


def _matrix(spec: ModelSpec, steps: Sequence[Step]) -> Float64:
    windows = Windows(spec)
    return np.array([features(step.spans, windows) for step in steps])


def _terms(a: Float64, t: Float64) -> Float64:
    """Errors count by their share of the step, so that short steps are as right as long ones."""
    weights = np.ones(len(t))
    each = np.zeros(a.shape[1])
    for _ in range(_ROUNDS):
        scale = np.sqrt(weights) / t
        each = non_negative(a * scale[:, None], t * scale)
        off = np.abs(a @ each / t - 1)
        weights = np.minimum(1.0, _FAR / np.maximum(off, 1e-9))
    return each


def _error(a: Float64, t: Float64, steps: Sequence[Step]) -> Error:
    """Each phase by the terms of the others."""
    names = np.array([step.phase for step in steps])
    of_steps: list[float] = []
    of_phases: list[float] = []
    for name in dict.fromkeys(names):
        out = names == name
        if out.all():
            continue
        found = a[out] @ _terms(a[~out], t[~out])
        of_steps += list(np.abs(found / t[out] - 1))
        of_phases.append(abs(float(found.sum() / t[out].sum()) - 1))
    if not of_phases:
        return Error(math.nan, math.nan, math.nan)
    return Error(statistics.median(of_steps), statistics.median(of_phases), max(of_phases))
