"""What the engine is, as JSON: its model in numbers, its weights, machine, cache and limits."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from pellucid.core.record import LoadRecord
from pellucid.core.spec import LayerSpec
from pellucid.costs import (
    KV_DTYPES,
    KV_ELEMENT_BYTES,
    in_blocks,
    kv_bytes_per_token,
    kv_types,
    kv_vector_bytes,
)
from pellucid.engine.memory import installed_memory, resident_memory
from pellucid.engine.records import EngineAbout


def about_json(about: EngineAbout, name: str, shows_prompts: bool) -> dict[str, Any]:
    """`name` is what the server calls its model."""
    return {
        "engine": str(about.epoch),
        "clock": {"monotonic": about.monotonic, "wall": about.wall},
        "model": _model(about, name),
        "tensors": [_tensor(tensor) for tensor in about.tensors],
        "machine": _machine(about),
        "cache": _cache(about),
        "limits": asdict(about.limits),
        "process": _process(about),
        "features": {"speculation": about.speculation},
        "shows_prompts": shows_prompts,
    }


def _model(about: EngineAbout, name: str) -> dict[str, Any]:
    spec = about.spec
    first = spec.layers[0]
    return {
        "name": name,
        "title": spec.name,
        "family": spec.family,
        "layers": spec.n_layers,
        "heads": first.n_heads,
        "kv_heads": first.n_kv_heads,
        "head_size": first.head_dim,
        "hidden": spec.d_model,
        "ffn": first.ffn_dim,
        "vocab": spec.vocab_size,
        "context": spec.context_length,
        "tied_head": spec.tied_head,
        "kv_bytes_per_token": about.kv_bytes_per_token,
        "kv_parts": [_kv_part(layer, about) for layer in spec.layers],
    }


def _kv_part(layer: LayerSpec, about: EngineAbout) -> dict[str, Any]:
    """What a position takes in one layer: kv_heads x (key + value features) x bytes; sizes are in
    bytes where a type has scales beside its features, or there are two types."""
    types = kv_types(about.kv_dtype)
    key = kv_vector_bytes(layer.head_dim, types.keys)
    value = kv_vector_bytes(layer.head_dim, types.values, about.kv_lanes)
    plain = types.keys == types.values and not in_blocks(types.keys)
    each = int(KV_ELEMENT_BYTES[types.keys]) if plain else 1
    return {
        "kv_heads": layer.n_kv_heads,
        "key_size": key // each,
        "value_size": value // each,
        "element_bytes": each,
        "window": layer.window,
    }


def _tensor(tensor: LoadRecord) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "format": tensor.format,
        "bytes": tensor.nbytes,
        "load_ms": None if tensor.seconds is None else round(1000 * tensor.seconds, 4),
    }


def _machine(about: EngineAbout) -> dict[str, Any]:
    peaks: dict[str, float | None] = dict.fromkeys(
        (
            *("peak_gb_per_s", "peak_gops_int8", "peak_gflops_f32"),
            *("measured_at", "measured_in_s", "best_since"),
        )
    )
    found = about.machine
    if found is not None:
        peaks = {
            "peak_gb_per_s": round(found.read_bytes_per_second / 1e9, 3),
            "peak_gops_int8": round(found.int8_operations_per_second / 1e9, 3),
            "peak_gflops_f32": round(found.f32_operations_per_second / 1e9, 3),
            "measured_at": found.measured_at,
            "measured_in_s": found.measured_in_s,
            "best_since": found.best_since,
        }
    return {
        "backend": about.backend,
        "threads": about.threads,
        "simd": about.simd,
        "memory_bytes": installed_memory(),
        **peaks,
    }


def _cache(about: EngineAbout) -> dict[str, Any]:
    limits = about.limits
    return {
        "page_size": limits.page_size,
        "n_pages": limits.n_pages,
        "bytes_per_page": limits.page_size * about.kv_bytes_per_token,
        "dtype": about.kv_dtype,
        "bytes_per_token": {
            dtype: kv_bytes_per_token(about.spec, dtype, about.kv_lanes) for dtype in KV_DTYPES
        },
    }


def _process(about: EngineAbout) -> dict[str, Any]:
    """Memory of the engine's process and of the server's, which may be one."""
    apart = about.process_id != os.getpid()
    server = resident_memory() if apart else 0
    return {
        "rss_bytes": about.resident + server,
        "engine_rss_bytes": about.resident,
        "server_rss_bytes": server if apart else None,
    }
