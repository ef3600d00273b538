"""StageActor: one stage of a pipeline, in a process of Ray's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.core.record import LoadRecord
from pellucid.formats import open_checkpoint
from pellucid.models.stage import LayerRange, Stage, load_stage
from pellucid.ops import backend
from pellucid.ops.step import Step


@dataclass(frozen=True, slots=True)
class StageOpening:
    """What a stage is of, and how it computes."""

    path: str
    layers: LayerRange
    context: int
    max_rows: int
    ops: dict[str, Any]
    """As `pellucid.ops.backend` takes it."""


class StageActor:
    """Does what a `PipelinedModel` asks. It says from its first moment that it lives: what takes
    long is `load`, in another thread than that."""

    _stage: Stage

    def __init__(self, opening: StageOpening) -> None:
        self._opening = opening
        self._cache: object = None

    def alive(self) -> None:
        """In another thread than a step."""

    def load(self) -> list[LoadRecord]:
        """Have the weights of its layers; what these are."""
        opening = self._opening
        settings = dict(opening.ops)
        ops = backend(settings.pop("name"), **settings)
        with open_checkpoint(Path(opening.path)) as checkpoint:
            self._stage = load_stage(
                checkpoint,
                ops,
                opening.layers,
                context=opening.context,
                max_rows=opening.max_rows,
            )
        return list(_records(self._stage))

    def learn_keys(
        self, token_ids: Sequence[int], rows: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32] | None:
        """As `Stage.learn_keys`."""
        return self._stage.learn_keys(token_ids, rows)

    def new_cache(self, n_pages: int, page_size: int) -> None:
        """Pages for the keys and values of its layers, in place of those it had. Raises as the
        backend's."""
        stage = self._stage
        self._cache = stage.ops.new_cache(stage.spec, n_pages, page_size)

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._stage.ops.copy_pages(self._cache, pairs)

    def forward(
        self, step: Step, rows: NDArray[np.float32] | None = None, hidden: bool = False
    ) -> NDArray[np.float32]:
        """As `Stage.forward`, on its own pages."""
        own = dataclasses.replace(step, cache=self._cache)
        return self._stage.forward(own, rows, hidden=hidden)


def _records(stage: Stage) -> Iterator[LoadRecord]:
    """The weights that it holds."""
    for name, weight in stage.weights.items():
        yield LoadRecord(
            name,
            tuple(weight.shape),
            stage.ops.format_of(weight),
            int(weight.nbytes),
            stage.weights.seconds.get(name),
        )
