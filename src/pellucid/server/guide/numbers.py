"""The numbers of the model that runs, as the chapters write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import log2, pi, prod
from pathlib import Path
from typing import Any, Final

from pellucid.costs import pages_for
from pellucid.costs.operations import linear
from pellucid.costs.roofline import Priced
from pellucid.explain.source import open_source
from pellucid.explain.words import billions, count, size

CONTEXT: Final = 500  # positions of the sequences that chapters reckon with
CROWD: Final = 32  # of them in a step
GUESSED: Final = 5  # positions of a step that checks four guesses
PAGE_SIZE: Final = 16

_UNIT = re.compile(
    r"(?<=\d) (?=[kMGTB]?B\b|[kMGBTP]\b|ms\b)"
)  # a number and its unit stay together


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
        "predicted": _predicted(priced),
    }


def _predicted(priced: Priced) -> dict[str, int]:
    """Operations and bytes of the steps that chapters reckon with."""
    spec, alone = priced.spec, priced.decode(CONTEXT)
    crowd, guessed = priced.decode(CONTEXT, CROWD), priced.decode(CONTEXT, rows=GUESSED)
    prefill = priced.prefill(CONTEXT)
    return {
        "round_weights": priced.decode(0).weights_read,
        "head_operations": linear(1, spec.d_model, spec.vocab_size, 0).operations,
        "prefill_operations": prefill.operations,
        "prefill_bytes": prefill.bytes_moved,
        "alone_kv": alone.kv_read,
        "alone_bytes": alone.bytes_moved,
        "crowd_weights": crowd.weights_read,
        "crowd_read": crowd.weights_read + crowd.kv_read,
        "guessed_bytes": guessed.bytes_moved,
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
        "operations_per_byte": f"{numbers['operations'] / numbers['weight_bytes']:.3g}",
        "mlp_matrices": f"{_mlp_matrices(numbers):.4g}",
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
        "operations": count(numbers["operations"]),
        "at_50": f"{numbers['weight_bytes'] / 50e9 * 1000:.3g} ms",
        "sixteen_bits": size(2 * numbers["parameters"]),
    }
    words |= _worked(numbers)
    return {key: _UNIT.sub("\u00a0", text) for key, text in words.items()}


def _worked(numbers: Mapping[str, Any]) -> dict[str, str]:
    """What stands in the formulas that are worked out."""
    predicted, kv = numbers["predicted"], numbers["kv_bytes"]
    base = numbers["rope_base"] or 10_000.0
    dims = numbers["rope_dims"] or numbers["head_size"]
    page, together = PAGE_SIZE * kv, predicted["crowd_read"] / CROWD
    several = predicted["guessed_bytes"] / predicted["alone_bytes"]
    prefill = predicted["prefill_operations"]
    return {
        "round_weights": size(predicted["round_weights"]),
        "hundred_rounds": size(100 * predicted["round_weights"]),
        "token_bits": f"{log2(numbers['vocab']):.1f}",
        "rope_base": f"{base:,.0f}",
        "rope_dims": str(dims),
        "rope_last": str(dims - 2),
        "slowest_round": f"{2 * pi * base ** ((dims - 2) / dims):,.0f}",
        "head_operations": count(predicted["head_operations"]),
        "head_share": f"{predicted['head_operations'] / numbers['operations']:.0%}",
        "prefill_operations": count(prefill),
        "prefill_bytes": size(predicted["prefill_bytes"]),
        "prefill_times": f"{prefill / numbers['operations']:.0f}",
        "prefill_intensity": f"{prefill / predicted['prefill_bytes']:,.0f}",
        "page_bytes": size(page),
        "thousand_pages": str(pages_for(1000, PAGE_SIZE)),
        "thousand_in_pages": size(pages_for(1000, PAGE_SIZE) * page),
        "alone_kv": size(predicted["alone_kv"]),
        "alone_bytes": size(predicted["round_weights"] + predicted["alone_kv"]),
        "crowd_weights": size(predicted["crowd_weights"]),
        "crowd_each": size(together),
        "all_bits": f"{8 * numbers['weight_bytes'] / numbers['parameters']:.4g}",
        "guessed_times": f"{several:.3f}",
        "guessed_gain": f"{sum(0.7**i for i in range(GUESSED)) / several:.3g}",
        "forty_thousand": size(40 * 1000 * kv),
    }


def _mlp_matrices(numbers: Mapping[str, Any]) -> float:
    """How many matrices of hidden x ffn a layer's MLP has: three where it is gated, more where it
    has experts."""
    each = numbers["layers"] * numbers["hidden"] * numbers["ffn"]
    return float(numbers["mlp_weights"] / each)
