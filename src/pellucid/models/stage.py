"""Stage: some layers of a model, and what stands before or after them: one machine's part of it.

    rows in --first: enter, else given--> layers first..last-1 --last: leave, head--> logits
                                                               `--else--> rows out, float32 [T, d]

A stage holds the weights of its own layers and nothing else, and computes what the whole model
would: rows between two layers are float32 in every backend, so that a cut changes no bit.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput
from pellucid.core.spec import ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.parts import head
from pellucid.models.registry import Family, is_no_weight, read_spec
from pellucid.models.weights import Weights, load_weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, HostTensor, Ops
from pellucid.quant.types import TensorType

Float32 = NDArray[np.float32]

_ROWS: Final = "rows.weight"


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Layers `first` to `last` - 1 of a model that has `total`."""

    first: int
    last: int
    total: int

    @property
    def enters(self) -> bool:
        """Whether it turns tokens into rows."""
        return self.first == 0

    @property
    def leaves(self) -> bool:
        """Whether it turns rows into logits."""
        return self.last == self.total

    def __str__(self) -> str:
        return f"layers {self.first} to {self.last - 1} of {self.total}"

    def holds(self, name: str, tied_head: bool) -> bool:
        """Whether a weight of that name is needed to compute it."""
        if name.startswith("blk."):
            return self.first <= int(name.split(".")[1]) < self.last
        if name.startswith("output"):
            return self.leaves
        return self.enters or (self.leaves and tied_head and name == "token_embd.weight")


def even_ranges(n_layers: int, stages: int) -> list[LayerRange]:
    """Layers shared out, as evenly as it goes. Raises `BadInput` for more stages than layers."""
    if not 1 <= stages <= n_layers:
        raise BadInput(
            f"stages must be from 1 to {n_layers}, the model's layers, not {stages}: choose fewer"
        )
    ends = [n_layers * stage // stages for stage in range(stages + 1)]
    return [LayerRange(first, last, n_layers) for first, last in itertools.pairwise(ends)]


class Stage:
    """A range of a model with its weights in one backend; at most `max_rows` rows a step."""

    def __init__(
        self,
        spec: ModelSpec,
        layers: LayerRange,
        ops: Ops,
        weights: Weights,
        family: Family,
        max_rows: int,
    ) -> None:
        self.spec = dataclasses.replace(spec, layers=spec.layers[layers.first : layers.last])
        self.layers = layers
        self.ops = ops
        self.weights = weights
        self._family = family
        self._rows, self._table = _table(ops, 1 if layers.enters else max_rows, spec.d_model)
        self._compile()

    def forward(self, step: Step, rows: Float32 | None = None, *, hidden: bool = False) -> Float32:
        """Rows [T, d] for the next stage, or of the last one logits [R, vocabulary]; with `hidden`
        what these would be read from, [R, d]. `rows` [T, d] are those of the stage before."""
        forward = self._hidden if hidden and self._hidden is not None else self._forward
        if rows is not None:  # read as a table whose row i is that of token i
            self._rows[: len(rows)] = rows
            step = dataclasses.replace(step, tokens=np.arange(len(rows), dtype=np.int32))
        return np.array(self.ops.to_numpy(forward(step)), np.float32)

    def learn_keys(self, token_ids: Sequence[int], rows: Float32 | None = None) -> Float32 | None:
        """Know of its layers' keys what the page `token_ids` shows, as `with_key_prior` does for a
        whole model; `rows` are those of the stage before, and what is returned is for the next:
        None where nothing is to be learned."""
        from pellucid.models.key_statistics import knowing, read_layers, telling_tokens

        tokens = telling_tokens(self.spec, self.ops, token_ids)
        if not tokens:
            return None
        table = self._table
        if rows is not None:
            own, table = _table(self.ops, len(rows), self.spec.d_model)
            own[:] = rows
            tokens = tuple(range(len(rows)))

        def through(ops: Ops, step: Step) -> Array:
            return self._through(step, ops, table)

        seen, beyond = read_layers(self.spec, self.ops, tokens, through, rows_too=True)
        self.weights = knowing(self.weights, self.spec, self.ops, seen, self.layers.first)
        self._compile()
        return np.array(beyond, np.float32)

    def _compile(self) -> None:
        self._forward = self.ops.compile(self._of_forward)
        self._hidden = self.ops.compile(self._of_hidden) if self.layers.leaves else None

    def _of_forward(self, step: Step) -> Array:
        if not self.layers.leaves:
            return self._through(step, self.ops, self._table)
        return head(self.ops, self.spec, self.weights, self._of_hidden(step))

    def _of_hidden(self, step: Step) -> Array:
        rows = self.ops.take_rows(self._through(step, self.ops, self._table), step.logit_rows)
        return self._family.leave(self.ops, self.spec, self.weights, rows)

    def _through(self, step: Step, ops: Ops, table: object) -> Array:
        spec, family = self.spec, self._family
        if self.layers.enters:
            x = family.enter(ops, spec, self.weights, step)  # [T, d]
        else:
            x = ops.embedding(step.tokens, table)
        for place, layer in enumerate(spec.layers):
            w = self.weights.layer(self.layers.first + place)
            x = family.decoder_layer(ops, spec, layer, w, x, place, step)
        return x


def load_stage(
    checkpoint: Checkpoint, ops: Ops, layers: LayerRange, *, context: int, max_rows: int
) -> Stage:
    """Some layers of the model in `checkpoint`; of its file no more is read. Errors as
    `load_model`."""
    family, spec = read_spec(checkpoint, context)
    weights = load_weights(
        checkpoint,
        family.tensors(spec),
        ops,
        skip=is_no_weight,
        only=lambda name: layers.holds(name, spec.tied_head),
    )
    return Stage(spec, layers, ops, weights, family, max_rows)


def _table(ops: Ops, n_rows: int, width: int) -> tuple[Float32, object]:
    """A table of float32 rows, and the memory that its backend reads it from."""
    rows = np.zeros((n_rows, width), np.float32)
    data = rows.reshape(-1).view(np.uint8)
    table = ops.load(HostTensor(_ROWS, rows.shape, TensorType.F32, data))
    return (table, table) if isinstance(table, np.ndarray) else (rows, table)
