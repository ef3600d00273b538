"""What a model file holds, as plain data for `pellucid inspect` to draw or print as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pellucid.formats.checkpoint import Checkpoint
from pellucid.formats.tensors import TensorInfo
from pellucid.quant.types import layout

# "blk.7.attn_q.weight", "model.layers.7.mlp.up_proj.weight", "h.7.ln_1.bias", ...
_LAYER = re.compile(r"(?:^|\.)(?:blk|layers|h|blocks)\.(\d{1,6})\.")
_MAX_TEXT = 200
_PACKED_PARTS = frozenset({"qweight", "qzeros", "scales", "g_idx"})
_MAX_ITEMS = 16
_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class TensorRow:
    """`shape` is rows first; `bits_per_weight` counts the scales of quantised blocks."""

    name: str
    shape: tuple[int, ...]
    type: str
    elements: int
    bytes: int
    bits_per_weight: float


@dataclass(frozen=True, slots=True)
class Group:
    """The tensors of one layer, or those outside all layers when `layer` is None."""

    layer: int | None
    elements: int
    bytes: int
    tensors: tuple[TensorRow, ...]


@dataclass(frozen=True, slots=True)
class TypeTotal:
    type: str
    tensors: int
    elements: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Description:
    """A whole checkpoint.

    `parameters` counts stored elements, so a tied output head once. `weight_bytes` is the tensors'
    share of `file_bytes`. `types` is sorted by bytes, `groups` by layer with the rest first.
    `metadata` holds short values as they are and long ones in words.
    """

    path: str
    kind: str
    architecture: str
    name: str
    files: tuple[str, ...]
    file_bytes: int
    weight_bytes: int
    parameters: int
    types: tuple[TypeTotal, ...]
    groups: tuple[Group, ...]
    metadata: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries, lists, strings and numbers."""
        return asdict(self)


def describe(checkpoint: Checkpoint) -> Description:
    """Describe a checkpoint from its header alone; no tensor is read."""
    tensors = list(checkpoint.tensors.values())
    return Description(
        path=str(checkpoint.path),
        kind=checkpoint.kind,
        architecture=_architecture(checkpoint),
        name=_name(checkpoint),
        files=tuple(str(path) for path in checkpoint.files),
        file_bytes=checkpoint.file_bytes,
        weight_bytes=sum(t.nbytes for t in tensors),
        parameters=sum(_parameters(checkpoint, t) for t in tensors),
        types=_by_type(tensors),
        groups=_by_layer(tensors),
        metadata={key: _short(value) for key, value in checkpoint.metadata.items()},
    )


def _parameters(checkpoint: Checkpoint, tensor: TensorInfo) -> int:
    """The weights in a tensor: GPTQ and AWQ pack several in a word; what scales them is none."""
    name = tensor.name
    base, _, part = name.rpartition(".")
    if f"{base}.qweight" not in checkpoint.tensors or part not in _PACKED_PARTS:
        return tensor.n_elements
    if part != "qweight":
        return 0
    quantization = checkpoint.metadata.get("quantization_config")
    given = quantization if isinstance(quantization, dict) else {}
    bits = given.get("bits", given.get("w_bit", 4))
    return tensor.n_elements * (32 // bits if bits in (2, 4, 8) else 8)


def _architecture(checkpoint: Checkpoint) -> str:
    metadata = checkpoint.metadata
    if checkpoint.kind == "gguf":
        return str(metadata.text("general.architecture", ""))
    names = metadata.texts("architectures", [])
    return names[0] if names else str(metadata.text("model_type", ""))


def _name(checkpoint: Checkpoint) -> str:
    key = "general.name" if checkpoint.kind == "gguf" else "_name_or_path"
    return str(checkpoint.metadata.text(key, "")) or checkpoint.path.stem


def _row(tensor: TensorInfo) -> TensorRow:
    return TensorRow(
        tensor.name,
        tensor.shape,
        tensor.type.name,
        tensor.n_elements,
        tensor.nbytes,
        layout(tensor.type).bits_per_weight,
    )


def _by_type(tensors: Iterable[TensorInfo]) -> tuple[TypeTotal, ...]:
    totals: dict[str, tuple[int, int, int]] = {}
    for tensor in tensors:
        count, elements, size = totals.get(tensor.type.name, (0, 0, 0))
        totals[tensor.type.name] = count + 1, elements + tensor.n_elements, size + tensor.nbytes
    rows = [TypeTotal(name, *total) for name, total in totals.items()]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.type)))


def _by_layer(tensors: Iterable[TensorInfo]) -> tuple[Group, ...]:
    layers: dict[int | None, list[TensorRow]] = {}
    for tensor in tensors:
        found = _LAYER.search(tensor.name)
        layers.setdefault(int(found[1]) if found else None, []).append(_row(tensor))
    return tuple(
        Group(layer, sum(r.elements for r in rows), sum(r.bytes for r in rows), tuple(rows))
        for layer, rows in sorted(layers.items(), key=lambda item: _layer_order(item[0]))
    )


def _layer_order(layer: int | None) -> int:
    return -1 if layer is None else layer


def _short(value: Any, depth: int = 0) -> Any:
    """A value that prints in a line and that JSON can hold: what is long becomes words about it."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.size <= _MAX_ITEMS else f"{value.size} values"
    match value:
        case list() | dict() if len(value) > _MAX_ITEMS or depth == _MAX_DEPTH:
            return f"{len(value)} values"
        case list():
            return [_short(item, depth + 1) for item in value]
        case dict():
            return {key: _short(item, depth + 1) for key, item in value.items()}
        case str() if len(value) > _MAX_TEXT:
            return f"text of {len(value)} characters"
        case float() if not math.isfinite(value):
            return str(value)  # JSON has no such number
    return value
