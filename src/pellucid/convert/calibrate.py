"""Which inputs of a matrix count: the sums of their squares over a text.

A weight's error reaches the output multiplied by its input, so squared errors weighed by the mean
square of each input are what the matrix's output loses (to first order, inputs taken as
uncorrelated). The text runs through the reference backend, whose every product is watched.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pellucid.convert.imatrix import Importance
from pellucid.core.errors import BadInput
from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec
from pellucid.formats import Checkpoint
from pellucid.models.registry import load_model
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.vocabulary import HostTensor
from pellucid.text import Tokenizer

Floats = NDArray[np.float32]

WINDOW = 512  # tokens that see one another
MAX_WINDOWS = 8  # of the text's beginning; mean squares settle long before


class _WatchingOps(ReferenceOps):
    """The reference, adding up the squares of what each weight is multiplied with.

    Products are one call of BLAS each: nothing here needs the same bits in any company.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, NDArray[np.float64]] = {}
        self._names: dict[int, str] = {}

    def load(self, tensor: HostTensor) -> Floats:
        weight = super().load(tensor)
        self._names[id(weight)] = tensor.name
        return weight

    def linear(self, x: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
        self._watch(x, weight)
        y: Floats = x @ weight.T
        return y if bias is None else y + bias

    def experts(
        self,
        x: Floats,
        router_logits: Floats,
        gate: Floats,
        up: Floats,
        down: Floats,
        layer: LayerSpec,
    ) -> Floats:
        """Inputs of all experts together; those of `down` are within, and not watched."""
        self._watch(x, gate)
        self._watch(x, up)
        return super().experts(x, router_logits, gate, up, down, layer)

    def _watch(self, x: Floats, weight: Floats) -> None:
        name = self._names[id(weight)]
        squares = np.einsum("nk,nk->k", x, x, dtype=np.float64)
        self.sums[name] = self.sums.get(name, 0.0) + squares


def calibrate(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    text: str,
    progress: Callable[[int, int], None] | None = None,
    name: str = "a text",
) -> Importance:
    """What the text called `name` stirs in the inputs of each matrix.

    `progress(done, total)` counts tokens. Raises `BadInput` for a text that is too short or a model
    that makes no numbers of it, and what `load_model` raises.
    """
    ops = _WatchingOps()
    model = load_model(checkpoint, ops)
    size = min(WINDOW, model.spec.context_length)
    ids = tokenizer.encode(text)[: size * MAX_WINDOWS]
    if len(ids) < 2:
        raise BadInput(f"the text to calibrate with has {len(ids)} tokens: give a page or more")
    for start in range(0, len(ids), size):
        window = tuple(ids[start : start + size])
        cache = ops.new_cache(model.spec, 1, len(window))
        span = Span(0, 0, window, (0,), n_logits=len(window))
        model.forward(Plan((span,), len(window)), cache)
        if progress is not None:
            progress(start + len(window), len(ids))
    sums = {matrix: each.astype(np.float32) for matrix, each in ops.sums.items()}
    broken = [matrix for matrix, each in sums.items() if not np.isfinite(each).all()]
    if broken:
        raise BadInput(
            f"{checkpoint.path}: the text makes infinite or undefined numbers before {broken[0]}: "
            "the model is damaged"
        )
    return Importance(sums, len(ids), size, name)
