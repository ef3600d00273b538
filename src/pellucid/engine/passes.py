"""Passes: a model's forward passes over its cache, and their stamps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pellucid.core.plan import Plan
from pellucid.engine.caches import new_cache
from pellucid.models.registry import Model
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Stamps
from pellucid.scheduling import Limits

Float32 = NDArray[np.float32]


class Passes:
    """Raises as `new_cache`."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self.cache = new_cache(model, limits)
        self._model = model
        self._stamping = False

    def copy_pages(self, plan: Plan) -> None:
        """What must be copied before the plan is computed."""
        self._model.ops.copy_pages(self.cache, plan.copies)

    def lower(self, plan: Plan) -> Step:
        """The plan as the backend takes it."""
        return self._model.ops.lower(plan, self.cache)

    def stamp(self, on: bool) -> None:
        """Whether the parts of passes to logits are timed from now on."""
        if on is not self._stamping:
            self._stamping = on
            self._model.stamp(on)

    def logits(self, step: Step) -> Float32:
        """Rows of logits, float32 [R, vocabulary]."""
        return self._model.ops.to_numpy(self._model.logits(step))

    def hidden(self, plan: Plan) -> Float32:
        """What logits would be read from, float32 [R, d]."""
        return self._model.ops.to_numpy(self._model.hidden(self.lower(plan)))

    def stamps(self) -> Stamps | None:
        """The parts of the pass to logits that was made last, if they were timed."""
        return self._model.stamps() if self._stamping else None
