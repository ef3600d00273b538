"""The operations a model may be written in, each with its equation.

A model sees opaque arrays of shape [rows, features], one row a token, and combines them only by
these operations and by `+`. A head's features lie side by side: [T, heads * head_dim]. Every
operation acts on each row by itself; only attention looks at other rows, through the pages of
the row's own sequence. So a row's result may not depend on which other rows are in the batch,
and on no backend does it: the bits are the same.

One order of arguments: the activations first, then the weights, then plain data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pellucid.core.plan import Plan
from pellucid.core.spec import LayerSpec, ModelSpec, RopeSpec
from pellucid.costs.stages import Stage
from pellucid.ops.key_prior import KeyPrior
from pellucid.ops.step import Step, lower
from pellucid.quant.types import TensorType

Array: TypeAlias = Any  # a backend's activations, [rows, features]
Weight: TypeAlias = Any  # a backend's prepared weight
# The parts of a forward pass in their order, and the seconds that each took.
Stamps: TypeAlias = "tuple[tuple[Stage, ...], array[float]]"


@dataclass(frozen=True, slots=True)
class HostTensor:
    """A weight as it lies in its file: `data` holds the bytes of `shape` in `type`'s blocks.

    `shape` is in NumPy order: a linear layer's weight is (out_features, in_features). `release`
    gives the memory of a mapped file's pages back once a backend has its own form of them; they
    are loaded again when next touched. Where a file holds the matrices of a stack one by one,
    `parts` has the bytes of each in order, and `data` none.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    data: NDArray[np.uint8]
    release: Callable[[], None] | None = None
    parts: tuple[NDArray[np.uint8], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return self.data.nbytes + sum(part.nbytes for part in self.parts)


class Ops(ABC):
    """One backend: prepares weights and caches, and runs the operations."""

    name: str
    kv_dtype: str  # how keys and values are kept, as `pellucid.costs.kv_types` has it
    exact: bool = False  # weights that no short type holds to the bit are wanted in float32
    kv_lanes: int = 1  # a value head's features are rounded up to a multiple of
    threads: int = 1
    instruction_set: str = "numpy"

    # Before a forward pass

    @abstractmethod
    def load(self, tensor: HostTensor) -> Weight:
        """The weight in the form this backend computes with."""

    @abstractmethod
    def new_cache(
        self, spec: ModelSpec, n_pages: int, page_size: int, kv_dtype: str | None = None
    ) -> object:
        """Storage for keys and values: `n_pages` pages of `page_size` positions, every layer, kept
        as `kv_dtype` says (default: the backend's)."""

    @abstractmethod
    def copy_pages(self, cache: object, pairs: Sequence[tuple[int, int]]) -> None:
        """For each (source, target) of `pairs`, the keys and values of page `source` in every layer
        copied to page `target`: what a sequence needs before it writes to a page it shares.

        Raises `ValueError` naming the pair, before anything is copied, for a page that `cache` does
        not have and for a target that is named twice or is also a source; so the order of the pairs
        never matters.
        """

    @abstractmethod
    def to_numpy(self, x: Array) -> NDArray[np.float32]:
        """The values of `x`, float32 [rows, features]."""

    def format_of(self, weight: Weight) -> str:
        """The form in which products read `weight`: a type of `pellucid.quant` in small letters."""
        return "f32"

    def lower(self, plan: Plan, cache: object) -> Step:
        """`plan` in the form that a compiled forward pass takes. Raises as `pellucid.ops.step`."""
        return lower(plan, cache)

    def compile(self, forward: Callable[[Step], Array]) -> Callable[[Step], Array]:
        """`forward` in the form in which this backend runs it step after step.

        `forward` may use its step's fields only as arguments of operations. A result that has a
        method `stamps` tells how long the parts of its last call took; one that has `stamping`
        does so while that is True.
        """
        return forward

    # Tokens in, rows out

    @abstractmethod
    def embedding(self, ids: NDArray[np.int32], table: Weight) -> Array:
        """y[t] = table[ids[t]]. table: (vocabulary, d). Also serves learnt positions."""

    @abstractmethod
    def take_rows(self, x: Array, rows: NDArray[np.int32]) -> Array:
        """y[r] = x[rows[r]]."""

    @abstractmethod
    def split(self, x: Array, sizes: Sequence[int]) -> tuple[Array, ...]:
        """x cut along its features into parts of the given sizes."""

    # Linear algebra

    @abstractmethod
    def linear(self, x: Array, weight: Weight, bias: Weight | None = None) -> Array:
        """y = x W^T + b. weight: (out, in); bias: (out,)."""

    @abstractmethod
    def experts(
        self,
        x: Array,
        router_logits: Array,
        gate: Weight,
        up: Weight,
        down: Weight,
        layer: LayerSpec,
    ) -> Array:
        """Mixture of SwiGLU experts (Shazeer et al. 2017; Jiang et al. 2024).

        p = softmax(router_logits); S = the `n_experts_used` likeliest (ties: lower index);
        y = sum over e in S of c_e down_e(silu(gate_e x) * up_e x), with c_e = p_e, divided by
        their sum over S if `normalize_expert_weights`. gate, up: (E, ffn, d); down: (E, d, ffn).
        """

    # Norms

    @abstractmethod
    def layer_norm(self, x: Array, weight: Weight, bias: Weight | None, eps: float) -> Array:
        """y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias (Ba et al. 2016)."""

    @abstractmethod
    def rms_norm(self, x: Array, weight: Weight, eps: float) -> Array:
        """y = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019).

        Over each run of len(weight) features, so that a head-sized weight norms every head.
        """

    @abstractmethod
    def stack(self, values: Sequence[Array]) -> Array:
        """Values of the same rows side by side: [T, sum of their features]."""

    # Positions and attention

    @abstractmethod
    def rope(self, x: Array, positions: NDArray[np.int32], head_dim: int, rope: RopeSpec) -> Array:
        """Each pair (a, b) of a head's first `rope.dims` features turned by the angle
        position * frequency: (a cos - b sin, b cos + a sin) (Su et al. 2021)."""

    @abstractmethod
    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        index: int,
        layer: LayerSpec,
        step: Step,
        prior: KeyPrior | None = None,
    ) -> Array:
        """Causal attention over the pages of each row's sequence (Vaswani et al. 2017).

        First k and v of every row are stored at the row's position in layer `index` of the
        cache. Then, for a row at position i and each head h, over the visible positions j <= i
        (with a window w: j > i - w):

            s_j = scale q.k_j;  s_j = cap tanh(s_j / cap) if capped;  s_j += slope_h (j - i)
            y = sum_j softmax(s)_j v_j

        q: [T, n_heads head_dim]; k, v: [T, n_kv_heads head_dim]; head h reads kv head
        h // (n_heads / n_kv_heads) (GQA, Ainslie et al. 2023). `prior` changes no
        result, but tells a cache that rounds keys what not to spend its bits on.
        """

    # Elementwise

    @abstractmethod
    def gelu(self, x: Array) -> Array:
        """x Phi(x), with the error function (Hendrycks and Gimpel 2016)."""

    @abstractmethod
    def gelu_tanh(self, x: Array) -> Array:
        """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""

    @abstractmethod
    def silu_mul(self, gate: Array, up: Array) -> Array:
        """gate sigmoid(gate) * up: the middle of SwiGLU (Shazeer 2020)."""

    @abstractmethod
    def gelu_tanh_mul(self, gate: Array, up: Array) -> Array:
        """gelu_tanh(gate) * up: the middle of GeGLU (Shazeer 2020)."""

    @abstractmethod
    def scale(self, x: Array, factor: float) -> Array:
        """x * factor."""

    @abstractmethod
    def clamp(self, x: Array, limit: float) -> Array:
        """x held between -limit and limit."""

    @abstractmethod
    def softcap(self, x: Array, cap: float) -> Array:
        """cap tanh(x / cap) (Gemma 2)."""
