"""From the vocabulary to what the kernels do.

A product reads a copy of its input in the form that its weight wants, int8 or bf16, made once
for all products of the same input and form. Of int8, those that give keys and values also read what
that copy leaves, quantised again: a sixteenth of a layer's arithmetic done twice takes a third of
the loss away. Attention first
stores keys and values. Rows that no logit asks for are left out as early as can be. A row's bits
are the same as if each operation had been done as recorded.
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


# Operations between a linear layer and the cache.
_TOWARDS_CACHE = frozenset({"rope", "rms_norm", "columns", "clamp"})


def _keys_and_values(nodes: list[Node]) -> set[Node]:
    """The nodes whose values are nothing but keys or values on their way to the cache."""
    users = users_of(nodes)
    found: set[Node] = set()

    def is_kept(x: Node, reader: Node) -> bool:
        if reader.op == "attention":
            return x is not reader.inputs[0]
        return reader.op in _TOWARDS_CACHE and reader in found

    for node in reversed(nodes):
        if users[node] and all(is_kept(node, reader) for reader in users[node]):
            found.add(node)
    return found


def lower(nodes: list[Node], output: Node) -> tuple[list[Node], Node]:
    """Linear layers as products of the form of input that their weights want, attention as a store
    and a reading of the cache."""
    new: dict[Node, Node] = {}
    copies: dict[tuple[Node, str], Node] = {}
    rests: dict[Node, Node] = {}
    result: list[Node] = []
    precise = _keys_and_values(nodes)
    # Both copies are made at once, before the first product of the input.
    with_rest = {
        node.inputs[0]
        for node in precise
        if node.op == "linear" and node.data["weight"].activations == "int8"
    }

    def emit(node: Node) -> Node:
        result.append(node)
        return node

    def product_input(old: Node, kind: str) -> Node:
        x = new[old]
        if (x, kind) not in copies:
            copies[x, kind] = make_input(old, kind)
        return copies[x, kind]

    def make_input(old: Node, kind: str) -> Node:
        x = new[old]
        if kind == "bf16":
            return emit(Node("quantize", (x,), x.width, x.logits, {"bf16": True}, quantized=True))
        if kind == "int8":
            blocks = emit(Node("quantize", (x,), x.width, x.logits, quantized=True))
            if old in with_rest:
                both = (x, blocks)
                rests[x] = emit(Node("quantize_rest", both, x.width, x.logits, quantized=True))
            return blocks
        # Float kernels read contiguous rows.
        return emit(Node("copy", (x,), x.width, x.logits)) if x.op == "columns" else x

    def product(node: Node) -> Node:
        kind = node.data["weight"].activations
        x = product_input(node.inputs[0], kind)
        if kind == "int8" and node in precise:
            both = (x, rests[new[node.inputs[0]]])
            return Node("precise_product", both, node.width, node.logits, node.data)
        return Node("product", (x,), node.width, node.logits, node.data)

    for node in nodes:
        inputs = tuple(new[x] for x in node.inputs)
        if node.op == "linear":
            new[node] = emit(product(node))
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
