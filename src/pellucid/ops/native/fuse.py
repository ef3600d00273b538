"""Neighbours joined. Each join leaves every bit as it was; tests compare with the program unfused.

gated       silu_mul(product, product) of one input: neither factor goes to memory
quantized   attention and gated products quantise their own result
residual    x + product: the product adds to x where x lies
"""

from __future__ import annotations

from pellucid.ops.native.graph import Node, rebuilt, users_of

_GATES = frozenset({"silu_mul", "gelu_tanh_mul"})
_BLOCK = 32  # values of a quantised block


def fuse(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    """All joins, one after the other."""
    for step in (_gated, _quantized, _residual):
        nodes, output = step(nodes, output)
    return nodes, output


def _replace(
    nodes: list[Node], output: Node, swap: dict[Node, Node | None]
) -> tuple[list[Node], Node]:
    """`nodes` with some replaced (by a node that may read old ones), or left out if by None; a
    node left out must have no reader that stays."""
    new: dict[Node, Node] = {}
    result = []
    for node in nodes:
        chosen = swap.get(node, node)
        if chosen is None:
            continue
        new[node] = rebuilt(chosen, [new[x] for x in chosen.inputs])
        result.append(new[node])
    return result, new[output]


def _gated(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    users = users_of(nodes)
    swap: dict[Node, Node | None] = {}
    for node in nodes:
        if node.op not in _GATES or node is output:
            continue
        gate, up = node.inputs
        alone = gate is not up and len(users[gate]) == len(users[up]) == 1
        if alone and gate.op == up.op == "product" and gate.inputs == up.inputs:
            swap[gate] = swap[up] = None
            data = {"act": node.op, "gate": gate.data, "up": up.data}
            swap[node] = Node("gated", gate.inputs, node.width, node.logits, data)
    return _replace(nodes, output, swap)


def _quantized(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    users = users_of(nodes)
    swap: dict[Node, Node | None] = {}
    for node in nodes:
        if node.op != "quantize":
            continue
        (x,) = node.inputs
        if x.op not in ("gated", "attend") or len(users[x]) != 1 or x is output:
            continue
        if x.op == "attend" and x.data["layer"].head_dim % _BLOCK:
            continue
        swap[x] = None
        swap[node] = rebuilt(x, x.inputs, quantized=True, data={**x.data, **node.data})
    return _replace(nodes, output, swap)


def _residual(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    """`add(x, product)` where nothing reads x later and the product does not read x itself."""
    users = users_of(nodes)
    place = {node: i for i, node in enumerate(nodes)}
    swap: dict[Node, Node | None] = {}
    for node in nodes:
        if node.op != "add" or node is output:
            continue
        for x, product in (node.inputs, node.inputs[::-1]):
            last = max(place[user] for user in users[x])
            if (
                product.op == "product"
                and len(users[product]) == 1
                and last == place[node]
                and x.op not in ("columns", "product")
                and all(user.op != "columns" for user in users[x])
                and users[x].count(node) == 1
                and not _same_memory(product.inputs[0], x)
                and swap.get(x, x) is not None
            ):
                swap[product] = None
                inputs = (*product.inputs, x)
                swap[node] = Node("product", inputs, node.width, node.logits, product.data)
                break
    return _replace(nodes, output, swap)


def _same_memory(a: Node, b: Node) -> bool:
    while a.op == "columns":
        a = a.inputs[0]
    return a is b
