"""Every operation of the vocabulary, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from pellucid.core.spec import LayerSpec, ModelSpec, RopeSpec
from pellucid.costs import kv_types
from pellucid.ops.key_prior import KeyPrior
from pellucid.ops.reference.attention import KVCache, attend
from pellucid.ops.reference.stamps import ReferenceForward
from pellucid.ops.rotary import rotations, turned_pairs
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import HostTensor, Ops
from pellucid.quant.dequantize import dequantize

Float32 = NDArray[np.float32]

# A BLAS may sum in another order for another number of rows; always handing it the same
# number makes a row's result independent of its neighbours. Of 8, 16 and 32, 8 decodes fastest.
ROW_TILE = 8

_erf = np.vectorize(math.erf, otypes=[np.float32])


class ReferenceOps(Ops):
    """The reference backend. `kv_dtype`: how keys and values are kept, by the names of `kv_types`.
    Raises `BadInput` for another."""

    name = "reference"
    exact = True

    def __init__(self, kv_dtype: str = "f32") -> None:
        self._kv_types = kv_types(kv_dtype)
        self.kv_dtype = str(self._kv_types)

    @cached_property
    def _names(self) -> dict[int, str]:
        """Of arrays that a model keeps."""
        return {}

    def load(self, tensor: HostTensor) -> Float32:
        if tensor.parts:
            weight = np.stack([dequantize(p, tensor.type, tensor.shape[1:]) for p in tensor.parts])
        else:
            weight = dequantize(tensor.data, tensor.type, tensor.shape)
        self._names[id(weight)] = tensor.name
        return weight

    def new_cache(
        self, spec: ModelSpec, n_pages: int, page_size: int, kv_dtype: str | None = None
    ) -> KVCache:
        types = self._kv_types if kv_dtype is None else kv_types(kv_dtype)
        return KVCache(spec, n_pages, page_size, types)

    def copy_pages(self, cache: object, pairs: Sequence[tuple[int, int]]) -> None:
        assert isinstance(cache, KVCache)
        cache.copy_pages(pairs)

    def compile(self, forward: Callable[[Step], Float32]) -> ReferenceForward:
        return ReferenceForward(self, forward)

    def name_of(self, x: object) -> str | None:
        """The name of a weight, as it was loaded; None for what is none."""
        return self._names.get(id(x))

    def to_numpy(self, x: Float32) -> Float32:
        return x

    def embedding(self, ids: NDArray[np.int32], table: Float32) -> Float32:
        return table[ids]

    def take_rows(self, x: Float32, rows: NDArray[np.int32]) -> Float32:
        return x[rows]

    def split(self, x: Float32, sizes: Sequence[int]) -> tuple[Float32, ...]:
        parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
        return tuple(np.ascontiguousarray(part) for part in parts)

    def stack(self, values: Sequence[Float32]) -> Float32:
        return np.concatenate(values, axis=1)

    def linear(self, x: Float32, weight: Float32, bias: Float32 | None = None) -> Float32:
        y = _matmul(x, weight)
        return y if bias is None else _f32(y + bias)

    def experts(
        self,
        x: Float32,
        router_logits: Float32,
        gate: Float32,
        up: Float32,
        down: Float32,
        layer: LayerSpec,
    ) -> Float32:
        shifted = np.exp(router_logits - router_logits.max(axis=1, keepdims=True))
        weight = shifted / shifted.sum(axis=1, keepdims=True)  # [T, E]
        chosen = np.argsort(-weight, axis=1, kind="stable")[:, : layer.n_experts_used]
        share = np.take_along_axis(weight, chosen, axis=1)  # [T, used]
        if layer.normalize_expert_weights:
            share = share / share.sum(axis=1, keepdims=True)
        # Each row adds its experts from the likeliest down, whatever the other rows chose.
        parts = np.empty((*chosen.shape, x.shape[1]), np.float32)  # [T, used, d]
        for expert in np.unique(chosen):
            rows, slots = np.nonzero(chosen == expert)
            hidden = self.silu_mul(_matmul(x[rows], gate[expert]), _matmul(x[rows], up[expert]))
            parts[rows, slots] = _matmul(hidden, down[expert])
        y = np.zeros_like(x)
        for slot in range(layer.n_experts_used):
            y += share[:, slot, None] * parts[:, slot]
        return y

    def layer_norm(self, x: Float32, weight: Float32, bias: Float32 | None, eps: float) -> Float32:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = np.mean(centred * centred, axis=1, keepdims=True)
        y = centred / np.sqrt(variance + np.float32(eps)) * weight
        return _f32(y) if bias is None else _f32(y + bias)

    def rms_norm(self, x: Float32, weight: Float32, eps: float) -> Float32:
        n_runs = x.shape[1] // len(weight)  # 1, or one for each head
        runs = x.reshape(len(x), n_runs, len(weight))
        mean_square = np.mean(runs * runs, axis=2, keepdims=True)
        return _f32(runs / np.sqrt(mean_square + np.float32(eps)) * weight).reshape(x.shape)

    def rope(
        self, x: Float32, positions: NDArray[np.int32], head_dim: int, rope: RopeSpec
    ) -> Float32:
        cos, sin = rotations(rope, positions)  # [T, dims/2]
        cos, sin = cos[:, None], sin[:, None]
        y = x.reshape(len(x), -1, head_dim).copy()  # [T, heads, head_dim]
        first, second = turned_pairs(rope)
        a, b = y[..., first].copy(), y[..., second].copy()
        y[..., first] = a * cos - b * sin
        y[..., second] = b * cos + a * sin
        return y.reshape(x.shape)

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
        assert isinstance(step.cache, KVCache)
        return attend(q, k, v, step.cache.layers[index], layer, step, prior)

    def gelu(self, x: Float32) -> Float32:
        return _f32(x * 0.5 * (1.0 + _erf(x / math.sqrt(2.0))))

    def gelu_tanh(self, x: Float32) -> Float32:
        inner = np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
        return _f32(0.5 * x * (1.0 + np.tanh(inner)))

    def silu_mul(self, gate: Float32, up: Float32) -> Float32:
        with np.errstate(over="ignore"):  # exp(-gate) may reach inf; the quotient is then -0
            return _f32(gate / (1.0 + np.exp(-gate)) * up)

    def gelu_tanh_mul(self, gate: Float32, up: Float32) -> Float32:
        return self.gelu_tanh(gate) * up

    def scale(self, x: Float32, factor: float) -> Float32:
        return x * np.float32(factor)

    def clamp(self, x: Float32, limit: float) -> Float32:
        return np.clip(x, -np.float32(limit), np.float32(limit))

    def softcap(self, x: Float32, cap: float) -> Float32:
        return _f32(np.float32(cap) * np.tanh(x / np.float32(cap)))


def _f32(x: NDArray[np.floating]) -> Float32:
    """For the type checker: Python's scalars never widen a float32 array."""
    assert x.dtype == np.float32
    return cast(Float32, x)


def _matmul(x: Float32, weight: Float32) -> Float32:
    """x W^T, in tiles of ROW_TILE rows, the last one filled up with zeros."""
    rows = len(x)
    padded = np.zeros((-(-rows // ROW_TILE) * ROW_TILE, x.shape[1]), np.float32)
    padded[:rows] = x
    y = np.empty((len(padded), len(weight)), np.float32)
    for i in range(0, len(padded), ROW_TILE):
        np.matmul(padded[i : i + ROW_TILE], weight.T, out=y[i : i + ROW_TILE])
    return y[:rows]
