"""The vocabulary, recorded; and the recorded program, run."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pellucid import _native
from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec, ModelSpec, RopeSpec
from pellucid.costs import NATIVE_LANES, in_blocks, kv_types
from pellucid.ops.key_prior import KeyPrior
from pellucid.ops.native.emit import Emitter
from pellucid.ops.native.fuse import fuse as join
from pellucid.ops.native.graph import LOGIT_ROWS, POSITIONS, TOKENS, Graph, Node, symbolic_step
from pellucid.ops.native.lower import early_rows, lower
from pellucid.ops.native.schedule import schedule
from pellucid.ops.native.weights import NativeWeight, pack_together
from pellucid.ops.rotary import KEY_BLOCK, key_offsets, rotations
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import HostTensor, Ops, Stamps
from pellucid.quant.types import TensorType

Float32 = NDArray[np.float32]

# What products multiply quantised weights with; bf16 for types that have kernels for it.
ACTIVATIONS = ("int8", "bf16", "f32")
# Angles are computed for this many positions at a time, as longer contexts are met.
_ROPE_CHUNK = 512


def available_threads() -> int:
    """Processor cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class NativeOps(Ops):
    """The native backend.

    `threads`: how many compute a step (default: the cores available to the process). `kv_dtype`:
    how keys and values are kept, by the names of `kv_types`. `simd`: an instruction set by name
    (default: the best this processor has, or PELLUCID_SIMD). `fuse`: off, every operation is a
    stage of its own; the results are the same. `activations`: what products of quantised weights
    read (default: int8, or PELLUCID_ACTIVATIONS): "int8"; "f32", exact and slower; or "bf16" for
    Q4_0 and Q4_1 on a processor with AMX tiles: faster over long prompts and more exact, slower up
    to a dozen rows.

    Operations may be called only within a forward pass handed to `compile`; arrays are then
    nodes of a graph. Raises `BadInput` for an argument that cannot be, `PellucidError` when the
    system gives no such number of threads.
    """

    name = "native"
    kv_lanes = NATIVE_LANES

    def __init__(
        self,
        *,
        threads: int | None = None,
        kv_dtype: str = "f16",
        simd: str = "",
        fuse: bool = True,
        activations: str = "",
    ) -> None:
        self._kv_types = kv_types(kv_dtype)
        self.kv_dtype = str(self._kv_types)
        self.threads = available_threads() if threads is None else threads
        self.fuse = fuse
        self.simd = simd
        try:
            self._pool = _native.program.Pool(self.threads)
            _native.program.Program(self._pool, simd)  # the instruction set is checked here
        except ValueError as error:
            raise BadInput(str(error)) from error
        except RuntimeError as error:
            raise PellucidError(str(error)) from error
        self.activations = self._checked_activations(activations)
        self._arena = _native.matmul.Arena()
        self._graph: Graph | None = None

    @property
    def instruction_set(self) -> str:  # type: ignore[override]
        """The one that kernels use here."""
        return self.simd or str(_native.matmul.chosen())

    def _checked_activations(self, asked: str) -> str:
        asked = asked or os.environ.get("PELLUCID_ACTIVATIONS", "int8")
        if asked == "int16":
            raise BadInput("activations in int16 are no more: bf16 takes their place")
        if asked not in ACTIVATIONS:
            raise BadInput(
                f"activations {asked!r} are unknown: choose one of {', '.join(ACTIVATIONS)}"
            )
        if asked == "bf16" and not _native.matmul.prefers_bf16(int(TensorType.Q4_0), self.simd):
            raise BadInput("activations in bf16 need a processor with AMX tiles, in use: use int8")
        return asked

    # Before a forward pass

    def load(self, tensor: HostTensor) -> NativeWeight:
        return NativeWeight(tensor, self._pool, self.simd, self._arena, self.activations)

    def new_cache(
        self, spec: ModelSpec, n_pages: int, page_size: int, kv_dtype: str | None = None
    ) -> Any:
        """A `_native.program.KvCache`. Raises `ValueError` naming a size that cannot be: pages
        hold a multiple of 16 positions."""
        layers = [(layer.n_kv_heads, layer.head_dim) for layer in spec.layers]
        types = self._kv_types if kv_dtype is None else kv_types(kv_dtype)
        return _native.program.KvCache(layers, n_pages, page_size, types.keys, types.values)

    def copy_pages(self, cache: Any, pairs: Sequence[tuple[int, int]]) -> None:
        try:
            table = np.array(pairs, np.int32).reshape(-1, 2)
        except OverflowError as error:
            raise ValueError(f"copy_pages: {error}") from error
        cache.copy_pages(table)

    def to_numpy(self, x: Any) -> Float32:
        return cast(Float32, x)

    def format_of(self, weight: NativeWeight) -> str:
        return weight.stored_as.name.lower()

    def lower(self, plan: Plan, cache: object) -> Planned:  # type: ignore[override]
        return Planned(plan.spans, plan.page_size, cache)

    def compile(self, forward: Callable[[Step], Any]) -> CompiledForward:
        """Record `forward` now, pack the weights it uses, and return its program."""
        self._graph = Graph()
        try:
            output = forward(symbolic_step())
            nodes = self._graph.nodes
        finally:
            self._graph = None
        pack_together(weight for node in nodes for weight in _products(node))
        nodes, output = lower(*early_rows(nodes, output))
        if self.fuse:
            nodes, output = join(nodes, output)
        plan = schedule(nodes, output, merge=self.fuse)
        return CompiledForward(Emitter(plan, output, self._pool, self.simd))

    def _add(self, op: str, inputs: tuple[Node, ...], width: int, **data: Any) -> Node:
        if self._graph is None:
            raise RuntimeError(f"{op}: native operations run only within a compiled forward pass")
        return self._graph.add(op, inputs, width, **data)

    # Tokens in, rows out

    def embedding(self, ids: Any, table: NativeWeight) -> Node:
        if ids is not TOKENS and ids is not POSITIONS:
            raise ValueError("embedding: ids must be the step's tokens or positions")
        table.keep_rows()
        return self._add("embedding", (), table.shape[1], table=table, ids=ids)

    def take_rows(self, x: Node, rows: Any) -> Node:
        if rows is not LOGIT_ROWS or x.logits:
            raise ValueError("take_rows: rows must be the step's logit_rows, of all rows")
        return self._add("take_rows", (x,), x.width, logits=True)

    def split(self, x: Node, sizes: Sequence[int]) -> tuple[Node, ...]:
        if sum(sizes) != x.width:
            raise ValueError(f"split: {list(sizes)} do not add up to {x.width} features")
        offsets = np.cumsum([0, *sizes[:-1]])
        return tuple(
            self._add("columns", (x,), size, offset=int(offset))
            for offset, size in zip(offsets, sizes, strict=True)
        )

    def stack(self, values: Sequence[Node]) -> Node:
        return self._add("stack", tuple(values), sum(x.width for x in values))

    # Linear algebra

    def linear(self, x: Node, weight: NativeWeight, bias: NativeWeight | None = None) -> Node:
        return self._add("linear", (x,), weight.shape[0], weight=weight, bias=bias)

    def experts(
        self,
        x: Node,
        router_logits: Node,
        gate: NativeWeight,
        up: NativeWeight,
        down: NativeWeight,
        layer: LayerSpec,
    ) -> Node:
        weights = {"gate": gate, "up": up, "down": down}
        return self._add("experts", (x, router_logits), x.width, layer=layer, **weights)

    # Norms

    def layer_norm(
        self, x: Node, weight: NativeWeight, bias: NativeWeight | None, eps: float
    ) -> Node:
        return self._add("layer_norm", (x,), x.width, weight=weight, bias=bias, eps=eps)

    def rms_norm(self, x: Node, weight: NativeWeight, eps: float) -> Node:
        return self._add("rms_norm", (x,), x.width, weight=weight, eps=eps)

    # Positions and attention

    def rope(self, x: Node, positions: Any, head_dim: int, rope: RopeSpec) -> Node:
        if positions is not POSITIONS:
            raise ValueError("rope: positions must be the step's")
        return self._add("rope", (x,), x.width, head_dim=head_dim, rope=rope)

    def attention(
        self,
        q: Node,
        k: Node,
        v: Node,
        index: int,
        layer: LayerSpec,
        step: Step,
        prior: KeyPrior | None = None,
    ) -> Node:
        known = prior if in_blocks(self._kv_types.keys) else None
        data = {
            "index": index,
            "layer": layer,
            "prior": known,
            "bf16_factors": self.activations == "bf16",
        }
        return self._add("attention", (q, k, v), q.width, **data)

    # Elementwise

    def gelu(self, x: Node) -> Node:
        return self._add("gelu", (x,), x.width)

    def gelu_tanh(self, x: Node) -> Node:
        return self._add("gelu_tanh", (x,), x.width)

    def silu_mul(self, gate: Node, up: Node) -> Node:
        return self._add("silu_mul", (gate, up), gate.width)

    def gelu_tanh_mul(self, gate: Node, up: Node) -> Node:
        return self._add("gelu_tanh_mul", (gate, up), gate.width)

    def scale(self, x: Node, factor: float) -> Node:
        return self._add("scale", (x,), x.width, number=factor)

    def clamp(self, x: Node, limit: float) -> Node:
        return self._add("clamp", (x,), x.width, number=limit)

    def softcap(self, x: Node, cap: float) -> Node:
        return self._add("softcap", (x,), x.width, number=cap)


class Planned(NamedTuple):
    """A plan as native code reads it: its arrays are made there."""

    spans: tuple[Span, ...]
    page_size: int
    cache: Any


class CompiledForward:
    """A recorded forward pass, called once a step. One call runs at a time."""

    def __init__(self, emitter: Emitter) -> None:
        self._program = emitter.program
        self._rope_tables = emitter.rope_tables
        self.stages = emitter.stages
        self._key_offsets = emitter.key_offsets
        self._reached = 0  # positions whose angles and key offsets are known

    @property
    def n_stages(self) -> int:
        """Barriers of the threads in one step."""
        return int(self._program.n_stages)

    def stamps(self) -> Stamps:
        """What was computed in the last step, and the seconds that each took."""
        return self.stages, array("d", self._program.stage_seconds)

    def stage_times(self) -> list[tuple[str, float]]:
        """Name and seconds of each stage of the last step, in their order."""
        return list(zip(self._program.stage_names, self._program.stage_seconds, strict=True))

    def __call__(self, step: Step | Planned) -> Float32:
        """The output's values, float32 [rows, features].

        Raises `ValueError` naming what of the step does not fit the model or its cache.
        """
        cache = cast(Any, step.cache)
        if step.page_size != cache.page_size:
            raise ValueError(f"step: page_size is {step.page_size}, the cache has another")
        if isinstance(step, Planned):
            ends = [start + len(tokens) for _, start, tokens, _, _ in step.spans]
            if ends and max(ends) > self._reached:
                self._reach(max(ends))
            return cast(Float32, self._program.run_plan(cache, step.spans))
        self._reach(max((start + length for _, length, start, _ in step.sequences), default=0))
        run = self._program.run
        output = run(cache, step.tokens, step.positions, step.logit_rows, step.sequences)
        return cast(Float32, output)

    def _reach(self, positions: int) -> None:
        """Make the angles and key offsets of every position below `positions` known."""
        for number, offsets in enumerate(self._key_offsets):
            have = self._program.key_offset_positions(number)
            if have < positions:
                want = -(-positions // _ROPE_CHUNK) * _ROPE_CHUNK
                blocks = range(have // KEY_BLOCK, want // KEY_BLOCK)
                values = key_offsets(offsets.rope, offsets.mean, offsets.head_dim, blocks)
                self._program.extend_key_offsets(number, values)
        for rope, table in self._rope_tables.items():
            have = self._program.rope_positions(table)
            if have >= positions:
                continue
            want = -(-positions // _ROPE_CHUNK) * _ROPE_CHUNK
            cos, sin = rotations(rope, np.arange(have, want, dtype=np.int32))
            if rope.style == "interleaved":  # beside each other, as the features they turn
                cos = np.repeat(cos, 2, axis=1)
                sin = np.stack([-sin, sin], axis=2).reshape(cos.shape)
            self._program.extend_rope_table(
                table, np.ascontiguousarray(cos), np.ascontiguousarray(sin)
            )
        self._reached = max(self._reached, positions)


def _products(node: Node) -> list[NativeWeight]:
    """The weights that a recorded operation multiplies with."""
    names = {"linear": ("weight",), "experts": ("gate", "up", "down")}.get(node.op, ())
    return [node.data[name] for name in names]
