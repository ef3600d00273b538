"""A case measured on the model's forward pass."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from pellucid.bench.cases import PAGE_SIZE, Case
from pellucid.bench.spread import Spread
from pellucid.core.errors import BadInput
from pellucid.core.plan import Plan
from pellucid.costs import Cost, WeightSize, step_cost
from pellucid.models.registry import Model
from pellucid.ops.native.peaks import Peaks, Probe


@dataclass(frozen=True, slots=True)
class Measured:
    """One case: the seconds of each repeat, the cost of one, and the peaks beside each."""

    case: Case
    seconds: tuple[float, ...]
    n_steps: int
    cost: Cost
    peaks: tuple[Peaks, ...]

    @property
    def tokens_per_second(self) -> Spread:
        return self._rate(self.case.total_tokens)

    @property
    def step_seconds(self) -> Spread:
        return Spread.of(seconds / self.n_steps for seconds in self.seconds)

    @property
    def weights_per_second(self) -> Spread:
        """Bytes of weights, each counted once a step."""
        return self._rate(self.cost.weights_read)

    @property
    def operations_per_second(self) -> Spread:
        return self._rate(self.cost.operations)

    @property
    def share_of_read(self) -> Spread:
        """Weights a second over what a plain read got beside the same repeat."""
        return self._share(self.weights_per_second, [peaks.read for peaks in self.peaks])

    def share_of_arithmetic(self, kind: str) -> Spread:
        """Operations a second over the peak of `kind`, "int8" or "f32"."""
        peaks = [getattr(peaks, kind) for peaks in self.peaks]
        return self._share(self.operations_per_second, peaks)

    def _rate(self, amount: float) -> Spread:
        return Spread.of(amount / seconds for seconds in self.seconds)

    @staticmethod
    def _share(rates: Spread, peaks: list[float]) -> Spread:
        return Spread.of(rate / peak for rate, peak in zip(rates.values, peaks, strict=True))


def weight_sizes(model: Model) -> dict[str, WeightSize]:
    """Shape and stored bytes of each weight, by GGUF's names."""
    return {
        name: WeightSize(tuple(weight.shape), int(weight.nbytes))
        for name, weight in model.weights.items()
    }


def measure(
    model: Model,
    case: Case,
    repeats: int,
    probe: Probe,
    sizes: Mapping[str, WeightSize],
) -> Measured:
    """`repeats` repeats after one that is not counted.

    Raises `BadInput` for more pages than the backend can have.
    """
    vocab = model.spec.vocab_size
    cache = _new_cache(model, case)
    for plan in case.preparation(vocab):
        model.forward(plan, cache)
    plans = list(case.plans(vocab))
    _time(model, plans, cache)
    seconds: list[float] = []
    peaks: list[Peaks] = []
    for _ in range(repeats):
        peaks.append(probe.measure())
        seconds.append(_time(model, plans, cache))
    kv = model.ops.kv_dtype, model.ops.kv_lanes
    costs = (step_cost(model.spec, sizes, plan.spans, *kv) for plan in plans)
    cost = reduce(add, costs, Cost())
    return Measured(case, tuple(seconds), len(plans), cost, tuple(peaks))


def _new_cache(model: Model, case: Case) -> Any:
    try:
        return model.ops.new_cache(model.spec, case.n_pages, PAGE_SIZE)
    except ValueError as error:
        raise BadInput(f"{case.name}: {error}") from error


def _time(model: Model, plans: list[Plan], cache: Any) -> float:
    begin = time.perf_counter()
    for plan in plans:
        model.forward(plan, cache)
    return time.perf_counter() - begin
