"""A schedule written into a `_native.program.Program`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid import _native
from pellucid.core.spec import LayerSpec, RopeSpec
from pellucid.ops.key_prior import padded
from pellucid.ops.native.graph import POSITIONS, Node
from pellucid.ops.native.schedule import PRODUCTS, ROW_OPS, Place, Schedule
from pellucid.ops.native.stages import describe


@dataclass(frozen=True, slots=True, eq=False)
class KeyMean:
    """What keys of a layer are on average before they are turned: [kv_heads head_dim]."""

    rope: RopeSpec | None
    mean: NDArray[np.float32]
    head_dim: int


class Emitter:
    """Builds one program. `rope_tables` maps each rotary embedding to its table's number, `stages`
    says what its stages are, `key_offsets` has what the program's key offsets come from, by their
    numbers."""

    def __init__(self, plan: Schedule, output: Node, pool: Any, simd: str) -> None:
        self.program = _native.program.Program(pool, simd)
        self.rope_tables: dict[RopeSpec, int] = {}
        self.stages = tuple(describe(plan.stages))
        self.key_offsets: list[KeyMean] = []
        self._places = plan.places
        for slot in plan.slots:
            self.program.add_slot(slot.logits, slot.bytes_per_row)
        for index in range(len(plan.stages)):
            self._stage(plan, index)
        self.program.set_output(output.logits, self._columns(output))

    def _stage(self, plan: Schedule, index: int) -> None:
        stage = plan.stages[index]
        first = stage[0]
        if first.op in ROW_OPS:
            own = plan.own[index]
            slots = sorted({plan.places[node].slot for node in stage}) if own else []
            self.program.begin_rows(first.logits, slots)
            for node in stage:
                _ROW_OPS.get(node.op, _ROW_OPS["other"])(self, node)
        elif first.op in PRODUCTS:
            self.program.begin_products(first.logits, self._value(first.inputs[0]))
            for node in stage:
                self._product(node)
        else:
            _STAGES[first.op](self, first)

        self.program.name_stage("+".join(_name(node) for node in stage))

    def _product(self, node: Node) -> None:
        weight, bias = _weight_and_bias(node.data)
        if node.op == "precise_product":
            rest = self._value(node.inputs[1])
            self.program.product(weight, bias, self._columns(node), False, rest)
        else:
            self.program.product(weight, bias, self._columns(node), len(node.inputs) == 2)

    def _columns(self, node: Node) -> Any:
        place: Place = self._places[node]
        return _native.program.Columns(place.slot, place.stride, place.offset, place.width)

    def _value(self, node: Node) -> Any:
        """Columns, or blocks if the value is quantised."""
        if node.quantized:
            bf16 = bool(node.data.get("bf16"))
            return _native.program.Blocks(self._places[node].slot, node.width, bf16)
        return self._columns(node)

    def _embedding(self, node: Node) -> None:
        table = node.data["table"].table()
        self.program.embedding(table, node.data["ids"] is POSITIONS, self._columns(node))

    def _quantize(self, node: Node) -> None:
        self.program.quantize(self._columns(node.inputs[0]), self._value(node))

    def _quantize_rest(self, node: Node) -> None:
        x, blocks = node.inputs
        self.program.quantize_rest(self._columns(x), self._value(blocks), self._value(node))

    def _rms_norm(self, node: Node) -> None:
        weight = node.data["weight"].values()
        x, y = self._columns(node.inputs[0]), self._columns(node)
        self.program.rms_norm(x, weight, node.data["eps"], y)

    def _layer_norm(self, node: Node) -> None:
        weight, bias = node.data["weight"].values(), _values(node.data["bias"])
        x, y = self._columns(node.inputs[0]), self._columns(node)
        self.program.layer_norm(x, weight, bias, node.data["eps"], y)

    def _rope(self, node: Node) -> None:
        rope: RopeSpec = node.data["rope"]
        if rope not in self.rope_tables:
            table = self.program.add_rope_table(rope.dims, rope.style == "half")
            self.rope_tables[rope] = table
        x, y = self._columns(node.inputs[0]), self._columns(node)
        self.program.rope(x, node.data["head_dim"], self.rope_tables[rope], y)

    def _store_kv(self, node: Node) -> None:
        layer: LayerSpec = node.data["layer"]
        k, v = (self._columns(x) for x in node.inputs)
        self.program.store_kv(
            k, v, node.data["index"], layer.n_kv_heads, layer.head_dim, self._offsets(node)
        )

    def _offsets(self, node: Node) -> int | None:
        prior, layer = node.data["prior"], node.data["layer"]
        if prior is None:
            return None
        width = layer.n_kv_heads * layer.head_dim
        self.key_offsets.append(KeyMean(layer.rope, prior.mean.values(), layer.head_dim))
        first = _table(prior.first, width)
        feedback = _table(prior.feedback, padded(layer.head_dim))
        return int(self.program.add_key_offsets(width, first, feedback))

    def _stack(self, node: Node) -> None:
        place, at = self._places[node], 0
        for x in node.inputs:
            part = _native.program.Columns(place.slot, place.stride, place.offset + at, x.width)
            self.program.unary("copy", self._columns(x), part)
            at += x.width

    def _elementwise(self, node: Node) -> None:
        values = [self._columns(x) for x in node.inputs]
        if node.op == "take_rows":
            self.program.take_rows(*values, self._columns(node))
        elif "number" in node.data:
            self.program.scalar(node.op, *values, node.data["number"], self._columns(node))
        elif len(values) == 2:
            self.program.binary(node.op, *values, self._columns(node))
        else:
            self.program.unary(node.op, *values, self._columns(node))

    def _gated(self, node: Node) -> None:
        gate, up = (_weight_and_bias(node.data[part]) for part in ("gate", "up"))
        x, y = self._value(node.inputs[0]), self._value(node)
        self.program.gated(node.logits, x, *gate, *up, node.data["act"], y)

    def _attend(self, node: Node) -> None:
        layer: LayerSpec = node.data["layer"]
        self.program.attention(
            node.data["index"],
            layer.n_heads,
            layer.n_kv_heads,
            layer.head_dim,
            layer.attention_scale,
            layer.attention_softcap or 0.0,
            layer.window or 0,
            np.asarray(layer.alibi_slopes, np.float32),
            node.data["bf16_factors"],
            self._columns(node.inputs[0]),
            self._value(node),
        )

    def _experts(self, node: Node) -> None:
        layer: LayerSpec = node.data["layer"]
        weights = [node.data[part].packed_experts() for part in ("gate", "up", "down")]
        x, router_logits = (self._columns(value) for value in node.inputs)
        self.program.experts(
            *weights,
            layer.n_experts_used,
            layer.normalize_expert_weights,
            x,
            router_logits,
            self._columns(node),
        )


_Method = Callable[[Emitter, Node], None]
_ROW_OPS: dict[str, _Method] = {
    "embedding": Emitter._embedding,
    "quantize": Emitter._quantize,
    "quantize_rest": Emitter._quantize_rest,
    "rms_norm": Emitter._rms_norm,
    "layer_norm": Emitter._layer_norm,
    "rope": Emitter._rope,
    "store_kv": Emitter._store_kv,
    "stack": Emitter._stack,
    "other": Emitter._elementwise,
}
_STAGES: dict[str, _Method] = {
    "gated": Emitter._gated,
    "attend": Emitter._attend,
    "experts": Emitter._experts,
}


def _name(node: Node) -> str:
    """An operation's name; a product goes by its weight's, without the layer."""
    if node.op in PRODUCTS:
        parts = node.data["weight"].name.removesuffix(".weight").split(".")
        return str(parts[-1])
    return node.op


def _table(weight: Any, width: int) -> NDArray[np.float32]:
    """A weight's values as rows of `width`; none of no weight."""
    values = np.empty(0, np.float32) if weight is None else weight.values()
    return np.ascontiguousarray(values.reshape(-1, width))


def _values(weight: Any) -> NDArray[np.float32] | None:
    return None if weight is None else weight.values()


def _weight_and_bias(data: dict[str, Any]) -> tuple[Any, NDArray[np.float32] | None]:
    return data["weight"].packed(), _values(data["bias"])
