"""The numbers of the model that runs, as the chapters write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from pellucid.explain.source import open_source
from pellucid.explain.words import billions, size

_UNIT = re.compile(r"(?<=\d) (?=[kMGTB]?B\b|[kMBTP]\b|ms\b)")  # a number and its unit stay together


def model_numbers(path: Path, name: str) -> dict[str, Any]:
    """What a model is, from its file's headers: JSON for the figures, and for `in_words`."""
    source = open_source(path)
    priced, spec = source.priced, source.spec
    layer = spec.layers[0]
    return {
        "name": name,
        "family": spec.family,
        "layers": spec.n_layers,
        "heads": layer.n_heads,
        "kv_heads": layer.n_kv_heads,
        "head_size": layer.head_dim,
        "hidden": spec.d_model,
        "ffn": layer.ffn_dim,
        "vocab": spec.vocab_size,
        "context": spec.context_length,
        "rope_base": None if layer.rope is None else layer.rope.base,
        "rope_dims": None if layer.rope is None else layer.rope.dims,
        "parameters": priced.parameters,
        "weight_bytes": priced.weight_bytes,
        "matrix_bits": priced.matrix_bits,
        "tied": spec.tied_head,
        "mlp_weights": sum(
            prod(weight.shape)
            for name, weight in priced.weights.items()
            if "ffn_" in name and len(weight.shape) > 1
        ),
        "operations": priced.decode(0).operations,
        "attention_operations": sum(4 * each.n_heads * each.head_dim for each in spec.layers),
        "kv_bytes": sum(2 * each.n_kv_heads * each.head_dim * 2 for each in spec.layers),
    }


def in_words(numbers: Mapping[str, Any]) -> dict[str, str]:
    """The same as the text of a chapter has them, and a few that follow from them."""
    kv, context = numbers["kv_bytes"], numbers["context"]
    words = {
        key: str(numbers[key])
        for key in ("name", "family", "layers", "heads", "kv_heads", "head_size", "hidden", "ffn")
    }
    name, base = numbers["name"], numbers["rope_base"]
    words |= {
        "base": f"{base:,.0f} in {name}" if base else f"{name} does without",
        "tying": f"as {name} does" if numbers["tied"] else f"though not in {name}",
        "mlp_weights": billions(numbers["mlp_weights"]),
        "mlp_share": f"{numbers['mlp_weights'] / numbers['parameters']:.0%}",
        "attention_operations": f"{numbers['attention_operations']:,}",
        "attention_even": f"{numbers['operations'] / numbers['attention_operations']:,.0f}",
        "operations_per_byte": f"{numbers['operations'] / numbers['weight_bytes']:.2g}",
    }
    words |= {
        "vocab": f"{numbers['vocab']:,}",
        "context": f"{context:,}",
        "parameters": billions(numbers["parameters"]),
        "weights": size(numbers["weight_bytes"]),
        "bits": f"{numbers['matrix_bits']:.3g}",
        "kv_bytes": f"{kv:,}",
        "kv_thousand": size(1000 * kv),
        "kv_whole": size(context * kv),
        "group": str(numbers["heads"] // numbers["kv_heads"]),
        "embedding_weights": billions(numbers["vocab"] * numbers["hidden"]),
        "operations": billions(numbers["operations"]),
        "at_50": f"{numbers['weight_bytes'] / 50e9 * 1000:.3g} ms",
        "sixteen_bits": size(2 * numbers["parameters"]),
    }
    return {key: _UNIT.sub("\u00a0", text) for key, text in words.items()}
