"""Which nodes run together, and which values share memory.

A stage is what the threads do between two barriers: one node, or several operations on rows by
themselves (then a thread takes a few rows through all of them), or several products of one input.
"""

from __future__ import annotations

from dataclasses import dataclass

from pellucid import _native
from pellucid.ops.native.graph import Node

ROW_OPS = frozenset(
    {
        "embedding", "take_rows", "quantize", "quantize_rest", "rms_norm", "layer_norm", "rope",
        "store_kv", "copy", "gelu", "gelu_tanh", "silu_mul", "gelu_tanh_mul", "add", "scale",
        "clamp", "softcap", "stack",
    }
)  # fmt: skip
PRODUCTS = frozenset({"product", "precise_product"})
_BLOCK_BYTES = 2  # of a value in int8: 64 bytes for 32 of them
_ALIGN = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies: a slot of the program, and for floats the columns within its rows."""

    slot: int
    stride: int
    offset: int
    width: int


@dataclass(slots=True)
class Slot:
    logits: bool
    bytes_per_row: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """`own`: for each stage, whether its results are read by the next one alone, a product's: then
    threads may compute them each for itself instead of waiting for each other."""

    stages: list[list[Node]]
    slots: list[Slot]
    places: dict[Node, Place]
    own: list[bool]


def schedule(nodes: list[Node], output: Node, *, merge: bool = True) -> Schedule:
    """Stages of `nodes` in their order, and memory for every value. With `merge` off each node is a
    stage of its own."""
    stages: list[list[Node]] = []
    for node in nodes:
        if node.op == "columns":  # a view: nothing to do
            continue
        if stages and merge and _together(stages[-1], node):
            stages[-1].append(node)
        else:
            stages.append([node])
    last_use = _last_uses(stages)
    own = [merge and _is_own(stages, i, last_use, output) for i in range(len(stages))]
    # What such a stage reads is read as long as the next one runs.
    for index, stage in enumerate(stages):
        for x in (x for node in stage for x in node.inputs if own[index]):
            last_use[storage(x)] = max(last_use[storage(x)], index + 1)
    slots, places = _allocate(stages, nodes, output, last_use)
    return Schedule(stages, slots, places, own)


def _last_uses(stages: list[list[Node]]) -> dict[Node, int]:
    """The last stage that reads or writes each memory."""
    last_use: dict[Node, int] = {}
    for index, stage in enumerate(stages):
        for node in stage:
            for value in (node, *node.inputs):
                last_use[storage(value)] = index
    return last_use


def _is_own(stages: list[list[Node]], index: int, last_use: dict[Node, int], output: Node) -> bool:
    stage = stages[index]
    if index + 1 == len(stages) or not all(n.op in ROW_OPS - {"store_kv"} for n in stage):
        return False
    following = stages[index + 1]
    if following[0].op not in PRODUCTS | {"gated"} or following[0].logits != stage[0].logits:
        return False
    results = {storage(node) for node in stage}
    if storage(output) in results or any(last_use[x] > index + 1 for x in results):
        return False
    # A thread may read while another is through with its part of the next stage.
    read = {storage(x) for node in stage for x in node.inputs} - results
    return not any(storage(node) in read | results for node in following)


def _together(stage: list[Node], node: Node) -> bool:
    first = stage[0]
    if first.logits != node.logits:
        return False
    if first.op in ROW_OPS and node.op in ROW_OPS:
        return True
    return (
        first.op in PRODUCTS
        and node.op in PRODUCTS
        and first.inputs[0] is node.inputs[0]
        and not any(x in stage for x in node.inputs)
    )


def storage(node: Node) -> Node:
    """The node whose memory a value lies in: a view's source, a fused residual's operand."""
    while True:
        if node.op == "columns":
            node = node.inputs[0]
        elif node.op == "product" and len(node.inputs) == 2:
            node = node.inputs[1]
        else:
            return node


def _allocate(
    stages: list[list[Node]], nodes: list[Node], output: Node, last_use: dict[Node, int]
) -> tuple[list[Slot], dict[Node, Place]]:
    """Linear scan over the stages: a slot is free again after the last stage that reads it."""
    slots: list[Slot] = []
    slot_of: dict[Node, int] = {}
    free: list[int] = []
    expiring: dict[int, list[int]] = {}
    for index, stage in enumerate(stages):
        for node in stage:
            if storage(node) is node and node.op != "store_kv":
                keep = storage(output) is node  # it is written straight to the caller
                slot_of[node] = _take(slots, [] if keep else free, node)
                if not keep:
                    expiring.setdefault(last_use[node], []).append(slot_of[node])
        free.extend(expiring.pop(index, []))
    return slots, {n: _place(n, slot_of) for n in nodes if n.op != "store_kv"}


def _take(slots: list[Slot], free: list[int], node: Node) -> int:
    """A free slot of the right kind: the best fit, else the largest made wider, else a new one."""
    need = _bytes_per_row(node)
    fitting = [i for i in free if slots[i].logits == node.logits]
    if not fitting:
        slots.append(Slot(node.logits, need))
        return len(slots) - 1
    large = [i for i in fitting if slots[i].bytes_per_row >= need]
    chosen = (
        min(large, key=lambda i: slots[i].bytes_per_row)
        if large
        else max(fitting, key=lambda i: slots[i].bytes_per_row)
    )
    slots[chosen].bytes_per_row = max(slots[chosen].bytes_per_row, need)
    free.remove(chosen)
    return chosen


def _bytes_per_row(node: Node) -> int:
    if node.data.get("bf16"):
        return int(_native.program.bf16_row_bytes(node.width))
    size = node.width * (_BLOCK_BYTES if node.quantized else 4)
    return -(-size // _ALIGN) * _ALIGN


def _place(node: Node, slot_of: dict[Node, int]) -> Place:
    base = storage(node)
    offset, view = 0, node
    while view.op == "columns":
        offset += view.data["offset"]
        view = view.inputs[0]
    return Place(slot_of[base], base.width, offset, node.width)
