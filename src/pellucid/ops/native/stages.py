"""The stages of a recorded program in words and numbers, for whoever explains its times."""

from __future__ import annotations

import re

from pellucid.costs.stages import Part, PartKind, Stage
from pellucid.ops.native.graph import Node
from pellucid.ops.native.schedule import PRODUCTS
from pellucid.ops.native.weights import NativeWeight

_LAYER = re.compile(r"blk\.(\d+)\.")
_NAMES = {
    "rms_norm": "norm",
    "layer_norm": "norm",
    "quantize_rest": "quantize",
    "attend": "attention",
    "store_kv": "store",
    "attn_qkv": "qkv",
    "attn_output": "attn_out",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
    "ffn_gate_inp": "router",
    "token_embd": "head",
    "output": "head",
}
_TOGETHER = {"attn_q+attn_k+attn_v": "qkv", "attn_q": "q", "attn_k": "k", "attn_v": "v"}


def describe(stages: list[list[Node]]) -> list[Stage]:
    """Each stage: its operations by name, the layer that it belongs to, and what it costs."""
    found: list[Stage] = []
    layer: int | None = None
    for stage in stages:
        layer = _layer(stage, layer)
        parts = tuple(part for node in stage for part in _parts(node))
        found.append(Stage(_op(stage), layer, parts))
    return found


def _op(stage: list[Node]) -> str:
    """Its operations in their order, each name once."""
    names = list(dict.fromkeys(name for node in stage for name in _names(node)))
    joined = "+".join(names)
    for long, short in _TOGETHER.items():
        joined = joined.replace(long, short)
    return joined


def _names(node: Node) -> tuple[str, ...]:
    if node.op in PRODUCTS:
        return (_of_weight(node.data["weight"].name),)
    if node.op == "gated":
        return tuple(_of_weight(node.data[part]["weight"].name) for part in ("gate", "up"))
    return (_NAMES.get(node.op, node.op),)


def _of_weight(name: str) -> str:
    part = name.removesuffix(".weight").split(".")[-1]
    return _NAMES.get(part, part)


def _layer(stage: list[Node], before: int | None) -> int | None:
    """That of its weights, or of its attention; what has neither goes with what came before."""
    for node in stage:
        if "index" in node.data:
            return int(node.data["index"])
        for weight in _weights(node):
            matched = _LAYER.match(weight.name)
            return None if matched is None else int(matched[1])
    return before


def _weights(node: Node) -> list[NativeWeight]:
    data = node.data
    if node.op == "gated":
        return [data[part]["weight"] for part in ("gate", "up")]
    return [data[key] for key in ("weight", "table", "gate", "up", "down") if key in data]


def _biases(node: Node) -> list[NativeWeight]:
    data = node.data
    found = [data[part].get("bias") for part in ("gate", "up")] if node.op == "gated" else []
    return [bias for bias in (*found, data.get("bias")) if bias is not None]


def _parts(node: Node) -> list[Part]:
    wanted, width = node.logits, node.width
    weights = _weights(node)
    biases = [
        Part("bias", wanted, n_out=bias.shape[0], nbytes=bias.nbytes) for bias in _biases(node)
    ]
    if node.op in PRODUCTS or node.op == "gated":
        products = [
            Part("linear", wanted, weight.shape[1], weight.shape[0], weight.nbytes)
            for weight in weights
        ]
        return products + biases
    if node.op in ("rms_norm", "layer_norm"):
        return [Part("norm", wanted, n_out=width, nbytes=weights[0].nbytes), *biases]
    if node.op == "embedding":
        [table] = weights
        return [Part("embedding", wanted, n_out=width, nbytes=table.nbytes // table.shape[0])]
    if node.op == "experts":
        layer = _expert_layer(weights)
        return [Part("experts", wanted, nbytes=weight.nbytes, layer=layer) for weight in weights]
    if node.op in ("attend", "store_kv"):
        kind: PartKind = "attend" if node.op == "attend" else "store"
        return [Part(kind, layer=int(node.data["index"]))]
    return [Part("rows", wanted, sum(x.width for x in node.inputs), width)]


def _expert_layer(weights: list[NativeWeight]) -> int:
    matched = _LAYER.match(weights[0].name)
    return 0 if matched is None else int(matched[1])
