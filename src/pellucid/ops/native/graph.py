"""A forward pass as a list of nodes, in the order in which the model asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pellucid.ops.step import Step


@dataclass(frozen=True, slots=True)
class Symbol:
    """An array of the step that is not known while a model is recorded."""

    name: str


TOKENS, POSITIONS, LOGIT_ROWS = Symbol("tokens"), Symbol("positions"), Symbol("logit_rows")


def symbolic_step() -> Step:
    """A step whose arrays are symbols; operations take them as they would take arrays."""
    tokens, positions, rows = (cast(NDArray[np.int32], s) for s in (TOKENS, POSITIONS, LOGIT_ROWS))
    return Step(tokens, positions, rows, (), 0, None)


@dataclass(eq=False, slots=True)
class Node:
    """One operation and the value it gives.

    `width` counts features; `logits` tells whether there is a row for each wanted logit or for each
    token; `quantized` whether the value is int8 blocks, or bf16 if `data` has that. `data` is
    what the operation needs besides its inputs (weights, numbers, specifications), by name.
    """

    op: str
    inputs: tuple[Node, ...]
    width: int
    logits: bool
    data: dict[str, Any] = field(default_factory=dict)
    quantized: bool = False
    graph: Graph | None = field(default=None, repr=False)

    def __add__(self, other: object) -> Node:
        if not isinstance(other, Node) or self.graph is None:
            return NotImplemented
        return self.graph.add("add", (self, other), self.width)


class Graph:
    """Nodes as they are recorded; the inputs of each come before it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(
        self,
        op: str,
        inputs: tuple[Node, ...],
        width: int,
        *,
        logits: bool | None = None,
        **data: Any,
    ) -> Node:
        """A new node. Raises `ValueError` when its inputs have rows of different kinds or do not
        belong to this graph."""
        for x in inputs:
            if x.graph is not self:
                raise ValueError(f"{op}: an operand was recorded in another forward pass")
        kinds = {x.logits for x in inputs}
        if len(kinds) > 1:
            raise ValueError(f"{op}: operands have different rows")
        if logits is None:
            logits = kinds.pop() if kinds else False
        node = Node(op, inputs, width, logits, data, graph=self)
        self.nodes.append(node)
        return node


Users = dict[Node, list[Node]]


def users_of(nodes: Iterable[Node]) -> Users:
    """For each node the nodes that read it, in order, once for each reading."""
    users: Users = {}
    for node in nodes:
        users.setdefault(node, [])
        for x in node.inputs:
            users.setdefault(x, []).append(node)
    return users


def rebuilt(node: Node, inputs: Sequence[Node], **changes: Any) -> Node:
    """A copy of `node` that reads `inputs`."""
    values: dict[str, Any] = {
        "width": node.width,
        "logits": node.logits,
        "data": node.data,
        "quantized": node.quantized,
    }
    values.update(changes)
    return Node(values.pop("op", node.op), tuple(inputs), **values)
