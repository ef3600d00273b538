"""A model file drawn in characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pellucid.cli.output import in_bytes, printable, table

if TYPE_CHECKING:
    from pellucid.core.spec import LayerSpec, ModelSpec
    from pellucid.formats.inspect import Description, Group, TensorRow

BAR = 30
_LAYER_PREFIX = re.compile(r"^.*?\b(?:blk|layers|h|blocks)\.\d+\.")


def draw(
    description: Description, spec: ModelSpec | None, refusal: str | None, memory: dict[str, Any]
) -> str:
    """The whole picture, a line end at its end."""
    parts = [_head(description)]
    parts.append(_shape(spec) if spec else f"not supported: {refusal}")
    parts += [_types(description), _tensors(description), _memory(memory)]
    return "\n\n".join(parts) + "\n"


def _head(description: Description) -> str:
    bits = 8 * description.weight_bytes / max(1, description.parameters)
    rows = [
        ("path", printable(description.path)),
        ("format", f"{description.kind}, {_files(description)}"),
        ("architecture", printable(description.architecture) or "not named"),
        (
            "parameters",
            f"{_count(description.parameters)}, {bits:.2f} bits each, "
            f"{in_bytes(description.weight_bytes)}",
        ),
    ]
    return f"{printable(description.name)}\n{_indented(table(rows))}"


def _files(description: Description) -> str:
    number = len(description.files)
    files = "one file" if number == 1 else f"{number} files"
    return f"{files} of {in_bytes(description.file_bytes)}"


def _shape(spec: ModelSpec) -> str:
    """The architecture in a few lines; layers that differ are counted by kind."""
    head = "tied to the embedding" if spec.tied_head else "of its own"
    rows = [
        ("layers", str(spec.n_layers)),
        ("width", f"{spec.d_model}, vocabulary {spec.vocab_size}, output head {head}"),
        ("context", f"{spec.context_length} positions"),
    ]
    kinds: dict[str, list[int]] = {}
    for number, layer in enumerate(spec.layers):
        kinds.setdefault(_layer(layer), []).append(number)
    for kind, numbers in kinds.items():
        rows.append((f"layer {_ranges(numbers)}", kind))
    return _indented(table(rows))


def _layer(layer: LayerSpec) -> str:
    parts = [f"{layer.n_heads} heads of {layer.head_dim}, {layer.n_kv_heads} for keys and values"]
    if layer.window is not None:
        parts.append(f"window of {layer.window}")
    if layer.rope is not None:
        scaling = f", {layer.rope.scaling.kind} scaling" if layer.rope.scaling else ""
        parts.append(f"RoPE base {layer.rope.base:g}{scaling}")
    if layer.alibi_slopes:
        parts.append("ALiBi")
    if layer.n_experts:
        parts.append(f"{layer.n_experts_used} of {layer.n_experts} experts")
    parts.append(f"MLP {layer.ffn_dim}")
    return ", ".join(parts)


def _types(description: Description) -> str:
    whole = max(1, description.weight_bytes)
    rows = [
        (
            total.type,
            f"{total.tensors} tensor{'' if total.tensors == 1 else 's'}",
            _count(total.elements),
            in_bytes(total.bytes),
            "█" * max(1, round(BAR * total.bytes / whole)),
        )
        for total in description.types
    ]
    return _indented(table(rows, right=(1, 2, 3))) if rows else "  no tensors"


def _tensors(description: Description) -> str:
    """Every tensor, layers that look the same drawn once."""
    blocks = []
    for groups in _alike(description.groups):
        first = groups[0]
        if first.layer is None:
            title = "outside the layers"
        else:
            numbers = _ranges([group.layer for group in groups if group.layer is not None])
            title = f"layer {numbers}" if len(groups) == 1 else f"layers {numbers}, each"
        blocks.append(f"{title}: {in_bytes(first.bytes)}\n{_indented(_rows(first))}")
    return "\n\n".join(blocks)


def _rows(group: Group) -> str:
    largest = max((row.bytes for row in group.tensors), default=1)
    rows = [
        (
            _short(row),
            row.type,
            " x ".join(map(str, row.shape)),
            in_bytes(row.bytes),
            "█" * round(BAR * row.bytes / max(1, largest)),
        )
        for row in group.tensors
    ]
    return table(rows, right=(2, 3)) if rows else "nothing"


def _alike(groups: tuple[Group, ...]) -> Iterator[list[Group]]:
    """Layers with the same tensors together, in the order of the first of each kind."""
    found: dict[Any, list[Group]] = {}
    for group in groups:
        look = tuple(sorted((_short(row), row.shape, row.type) for row in group.tensors))
        found.setdefault((group.layer is None, look), []).append(group)
    yield from found.values()


def _short(row: TensorRow) -> str:
    """A tensor's name within its layer."""
    return printable(_LAYER_PREFIX.sub("", row.name))


def _memory(memory: dict[str, Any]) -> str:
    """A row for each backend, and a warning for each way not to fit."""
    known = "context" in memory
    head = ("BACKEND", "WEIGHTS") + (("KV CACHE", "OF", "TOGETHER") if known else ())
    rows: list[tuple[str, ...]] = [head]
    warnings = []
    for backend in ("reference", "native"):
        need = memory[backend]
        cells: tuple[str, ...] = (backend, in_bytes(need["weights"]))
        if known:
            of = f"{in_bytes(need['kv_cache_per_token'])} a position, {need['kv_cache_dtype']}"
            cells += (in_bytes(need["kv_cache"]), of, in_bytes(need["total"]))
        rows.append(cells)
        if need["weights"] > memory["available"]:
            warnings.append(f"{backend}: the weights do not fit: a smaller model is needed.")
        elif need.get("total", 0) > memory["available"]:
            warnings.append(f"{backend}: this context does not fit: ask for less (--context).")
    types = memory.get("kv_cache_types", {})
    if types:
        counts = (f"{name} {_count(of['positions_per_gib'])}" for name, of in types.items())
        warnings.insert(0, f"positions in a GiB by --kv-cache-dtype: {', '.join(counts)}")
    at = f" for {memory['context']} positions" if known else ""
    title = f"memory{at}, {in_bytes(memory['available'])} free on this machine"
    return "\n".join([title, _indented(table(rows, right=(1, 2, 4))), *map(_indented, warnings)])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _count(number: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return str(number)


def _ranges(numbers: list[int]) -> str:
    """0-4, 6, 8-9"""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
