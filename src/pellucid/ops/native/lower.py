"""From the vocabulary to what the kernels do.

A product with an int8 kernel reads a quantised copy of its input, made once for all products of
the same input. Attention first stores keys and values. Rows that no logit asks for are left out
as early as can be. A row's bits are the same as if each operation had been done as recorded.
"""

from __future__ import annotations

from pellucid.ops.native.graph import Node, rebuilt, users_of

# Operations that look at a row's position or at other rows need all tokens.
_NEEDS_TOKENS = frozenset({"embedding", "rope", "attention", "experts"})


def early_rows(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    """Take the wanted rows before the operations that work on each row by itself.

    An operation moves to the wanted rows when every reader of its value has moved. What remains on
    all rows after the last attention is nothing but the residual that it needs.
    """
    users = users_of(nodes)
    moved: set[Node] = set()
    for node in reversed(nodes):
        readers = users[node]
        if node.logits or node is output or node.op in _NEEDS_TOKENS or not readers:
            continue
        if all(reader in moved or reader.op == "take_rows" for reader in readers):
            moved.add(node)
    new: dict[Node, Node] = {}
    taken: dict[Node, Node] = {}
    result: list[Node] = []

    def wanted(x: Node) -> Node:
        """The wanted rows of `x`, whichever rows it has."""
        y = new[x]
        if y.logits:
            return y
        if x not in taken:
            taken[x] = Node("take_rows", (y,), y.width, True)
            result.append(taken[x])
        return taken[x]

    for node in nodes:
        if node.op == "take_rows":
            new[node] = wanted(node.inputs[0])
            continue
        on_wanted = node.logits or node in moved
        inputs = [wanted(x) if on_wanted else new[x] for x in node.inputs]
        new[node] = rebuilt(node, inputs, logits=on_wanted)
        result.append(new[node])
    return result, new[output]


def lower(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    """Linear layers as products of the form of input that their weights want, attention as a store
    and a reading of the cache."""
    new: dict[Node, Node] = {}
    quantized: dict[Node, Node] = {}
    whole: dict[Node, Node] = {}
    result: list[Node] = []

    def emit(node: Node) -> Node:
        result.append(node)
        return node

    def product_input(x: Node, int8: bool) -> Node:
        known = quantized if int8 else whole
        if x not in known:
            if int8:
                known[x] = emit(Node("quantize", (x,), x.width, x.logits, quantized=True))
            elif x.op == "columns":  # float kernels read contiguous rows
                known[x] = emit(Node("copy", (x,), x.width, x.logits))
            else:
                known[x] = x
        return known[x]

    for node in nodes:
        inputs = tuple(new[x] for x in node.inputs)
        if node.op == "linear":
            x = product_input(inputs[0], node.data["weight"].wants_int8)
            new[node] = emit(Node("product", (x,), node.width, node.logits, node.data))
        elif node.op == "attention":
            q, k, v = inputs
            stored = emit(Node("store_kv", (k, v), 0, False, node.data))
            new[node] = emit(Node("attend", (q, stored), node.width, False, node.data))
        else:
            new[node] = emit(rebuilt(node, inputs))
    return _contiguous_output(result, new[output])


def _contiguous_output(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    if output.op == "columns":
        output = Node("copy", (output,), output.width, output.logits)
        nodes.append(output)
    return nodes, output
