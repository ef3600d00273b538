"""A forward pass that is watched: the residual stream after each layer, queries and keys.

A model file knows nothing of it: it is written over operations, and these operations are the
reference's, which keep a copy of what they are given. The residual stream that enters a layer is
what the layer's first norm reads; what leaves the last layer is what the final norm reads.

Weights stay as they are stored and are dequantised, exactly, as each product needs them, a few
megabytes at a time: a model takes no more memory here than its largest matrix has rows in a piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.convert.source import rows_of
from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import pages_for
from pellucid.formats import Checkpoint
from pellucid.models.parts import head
from pellucid.models.registry import Model, load_model
from pellucid.ops.key_prior import KeyPrior
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.reference.attention import row_weights, slopes_of
from pellucid.ops.step import Step, lower
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.dequantize import dequantize
from pellucid.quant.types import byte_count

Float32 = NDArray[np.float32]

PAGE_SIZE = 16
_FIRST_NORM = re.compile(r"blk\.(\d+)\.attn_norm\.weight")
_LAST_NORM = "output_norm.weight"


class Stored:
    """A weight of two axes or more as its file has it, dequantised when asked."""

    def __init__(self, host: HostTensor) -> None:
        self.shape = host.shape
        self._host = host
        self._row_bytes = byte_count(host.type, (1, *host.shape[1:]))

    def __getitem__(self, index: int) -> Float32:
        """One matrix of a stack: the experts of a layer are read as they are chosen."""
        host = self._host
        raw = host.parts[index] if host.parts else self._raw(index, index + 1)
        return dequantize(raw, host.type, host.shape[1:])

    def rows(self, indices: NDArray[np.int32]) -> Float32:
        """Some rows, float32 [len(indices), features]."""
        wanted, back = np.unique(indices, return_inverse=True)
        raw = np.concatenate([self._raw(i, i + 1) for i in map(int, wanted)])
        return dequantize(raw, self._host.type, (len(wanted), *self.shape[1:]))[back]

    def product(self, x: Float32, linear: Callable[[Float32, Float32], Float32]) -> Float32:
        """`linear` of x and each piece of the rows, side by side."""
        pieces = rows_of(self._raw(0, self.shape[0]), self._host.type, self.shape)
        y = np.concatenate([linear(x, piece) for piece in pieces], axis=1)
        if self._host.release is not None:
            self._host.release()
        return y

    def _raw(self, first: int, last: int) -> NDArray[np.uint8]:
        return self._host.data[first * self._row_bytes : last * self._row_bytes]


@dataclass(frozen=True, slots=True)
class Heads:
    """Queries and keys of one layer as attention met them: [T, n_heads * head_dim] and
    [T, n_kv_heads * head_dim], turned by their positions already."""

    q: Float32
    k: Float32
    layer: LayerSpec

    def row(self, position: int) -> Float32:
        """What share each head gives to each position up to this one, float32
        [n_heads, position + 1]; each row sums to 1, and is 0 outside a window."""
        layer = self.layer
        first = 0 if layer.window is None else max(0, position + 1 - layer.window)
        shape = (-1, layer.n_kv_heads, layer.head_dim)
        keys = self.k[first : position + 1].reshape(shape).transpose(1, 0, 2)
        q = self.q[position].reshape(layer.n_kv_heads, -1, layer.head_dim)
        weights = np.zeros((layer.n_heads, position + 1), np.float32)
        seen = row_weights(q, np.ascontiguousarray(keys), slopes_of(layer), layer)
        weights[:, first:] = seen.reshape(layer.n_heads, -1)
        return weights

    def matrix(self, head: int) -> Float32:
        """One head's weights, float32 [T, T]: row i is what position i takes from each."""
        length = len(self.q)
        out = np.zeros((length, length), np.float32)
        for position in range(length):
            out[position, : position + 1] = self.row(position)[head]
        return out


def _go_on() -> None:
    """Somebody waits for it."""


class WatchedOps(ReferenceOps):
    """The reference's operations, which remember. One instance watches one pass. `check`, called in
    each layer, ends the pass by raising."""

    def __init__(self, check: Callable[[], None] = _go_on) -> None:
        super().__init__()
        self._check = check
        self.residuals: dict[int, Float32] = {}  # [d], by layers before it; -1 after all
        self.heads: dict[int, Heads] = {}
        self.final_norm: Callable[[Float32], Float32]  # set as the pass ends
        self._names: dict[int, str] = {}  # by identity: the norms kept in `_kept`
        self._kept: list[Float32] = []

    def load(self, tensor: HostTensor) -> Float32 | Stored:  # type: ignore[override]
        if len(tensor.shape) > 1:
            return Stored(tensor)
        values = super().load(tensor)
        self._kept.append(values)
        self._names[id(values)] = tensor.name
        return values

    def embedding(self, ids: NDArray[np.int32], table: Stored) -> Float32:  # type: ignore[override]
        return table.rows(ids)

    def linear(self, x: Float32, weight: Float32 | Stored, bias: Float32 | None = None) -> Float32:
        if isinstance(weight, np.ndarray):  # a piece of one
            return super().linear(x, weight, bias)
        y = weight.product(x, super().linear)
        return y if bias is None else np.asarray(y + bias, np.float32)

    def rms_norm(self, x: Float32, weight: Float32, eps: float) -> Float32:
        self._look(x, weight, lambda rows: ReferenceOps.rms_norm(self, rows, weight, eps))
        return super().rms_norm(x, weight, eps)

    def layer_norm(self, x: Float32, weight: Float32, bias: Float32 | None, eps: float) -> Float32:
        self._look(x, weight, lambda rows: ReferenceOps.layer_norm(self, rows, weight, bias, eps))
        return super().layer_norm(x, weight, bias, eps)

    def attention(
        self,
        q: Float32,
        k: Float32,
        v: Float32,
        index: int,
        layer: LayerSpec,
        step: Step,
        prior: KeyPrior | None = None,
    ) -> Float32:
        self._check()
        self.heads[index] = Heads(q.copy(), k.copy(), layer)
        return super().attention(q, k, v, index, layer, step, prior)

    def _look(self, x: Float32, weight: Float32, norm: Callable[[Float32], Float32]) -> None:
        name = self._names.get(id(weight), "")
        if found := _FIRST_NORM.fullmatch(name):
            self.residuals[int(found[1])] = x[-1].copy()
        elif name == _LAST_NORM:
            self.residuals[-1] = x[-1].copy()
            self.final_norm = norm


@dataclass(frozen=True, slots=True)
class Inside:
    """What a prompt's forward pass looked like, at the reference's exactness.

    residuals: float32 [n_layers + 1, d], the last position's row as the embedding left it and as
    each layer did. lens: float32 [n_layers + 1, vocabulary], the logits that the final norm and the
    head read from each of them; the last row is what the model answers with. heads: by layer.
    """

    spec: ModelSpec
    token_ids: tuple[int, ...]
    residuals: Float32
    lens: Float32
    heads: tuple[Heads, ...]


def look_inside(
    checkpoint: Checkpoint,
    token_ids: Sequence[int],
    context: int,
    check: Callable[[], None] = _go_on,
) -> Inside:
    """One pass over `token_ids`, of a model used at `context` positions.

    Raises what reading and loading the model raise, and what `check` does, which is called now and
    then.
    """
    ops = WatchedOps(check)
    return watch(load_model(checkpoint, ops, context=context), ops, token_ids)


def watch(model: Model, ops: WatchedOps, token_ids: Sequence[int]) -> Inside:
    """The same of a model whose weights `ops` has loaded, for the first and only time."""
    spec, length = model.spec, len(token_ids)
    pages = tuple(range(pages_for(length, PAGE_SIZE)))
    plan = Plan((Span(0, 0, tuple(token_ids), pages, 1),), PAGE_SIZE)
    final = model.hidden(lower(plan, ops.new_cache(spec, len(pages), PAGE_SIZE)))
    residuals = np.stack([ops.residuals[i] for i in (*range(spec.n_layers), -1)])
    with np.errstate(all="ignore"):
        normed = ops.final_norm(residuals)
        assert np.array_equal(normed[-1], final[-1])  # the lens ends where the model does
        lens = head(ops, spec, model.weights, normed)
    heads = tuple(ops.heads[i] for i in range(spec.n_layers))
    return Inside(spec, tuple(token_ids), residuals, lens, heads)
