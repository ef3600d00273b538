"""How files say what rotary embedding a model uses: config.json (both generations) and GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.core.spec import RopeScaling, RopeSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.fields import Fields


def rope_from_config(config: Fields, dims: int, context: int, default_base: float) -> RopeSpec:
    """RopeSpec of a Hugging Face config: `rope_parameters`, or `rope_theta` and `rope_scaling`.

    `context` is the length the model will be used at; it settles LongRoPE's choice of factors.
    """
    parameters = config.raw("rope_parameters")
    scaling = config.raw("rope_scaling")
    base = config.number("rope_theta", default_base)
    given = {**(scaling or {}), **(parameters or {})}
    return rope_from_parameters(config, given, dims, context, base)


def rope_from_parameters(
    config: Fields, given: Mapping[str, Any], dims: int, context: int, base: float
) -> RopeSpec:
    """RopeSpec of one `rope_parameters` object."""
    parameters = Fields(given, f"{config.path}: rope_parameters")
    base = parameters.number("rope_theta", base)
    partial = parameters.number("partial_rotary_factor", 1.0)
    if partial != 1.0:
        dims = int(dims * partial)
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    parameters.harmless(["type"])
    scaling = _scaling_from(kind, parameters, config, context)
    parameters.finish()
    return RopeSpec(base, dims, "half", scaling)


def _scaling_from(
    kind: str, parameters: Fields, config: Fields, context: int
) -> RopeScaling | None:
    trained = config.whole("max_position_embeddings")
    original = parameters.whole(
        "original_max_position_embeddings",
        config.whole("original_max_position_embeddings", trained),
    )
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", parameters.number("factor"))
    if kind == "dynamic":
        return RopeScaling("dynamic", parameters.number("factor"), original)
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            parameters.number("factor"),
            original,
            low_freq_factor=parameters.number("low_freq_factor"),
            high_freq_factor=parameters.number("high_freq_factor"),
        )
    factor = parameters.number("factor", trained / original)
    attention_factor = (
        parameters.number("attention_factor") if "attention_factor" in parameters else None
    )
    if kind == "yarn":
        parameters.only("truncate", True)
        return RopeScaling(
            "yarn",
            factor,
            original,
            beta_fast=parameters.number("beta_fast", 32.0),
            beta_slow=parameters.number("beta_slow", 1.0),
            attention_factor=attention_factor,
        )
    if kind in ("longrope", "su"):
        short, long = parameters.raw("short_factor"), parameters.raw("long_factor")
        chosen = long if context > original else short
        return RopeScaling(
            "factors", factor, original, attention_factor=attention_factor, factors=tuple(chosen)
        )
    raise UnsupportedError(f"{config.path}: rope_type {kind!r} is not implemented")


def rope_from_gguf(
    fields: Fields, checkpoint: Checkpoint, head_dim: int, context: int, style: str
) -> RopeSpec:
    """RopeSpec of a GGUF file's `*.rope.*` keys and its `rope_*` tensors."""
    dims = fields.whole("rope.dimension_count", head_dim)
    base = fields.number("rope.freq_base", 10000.0)
    kind = fields.text("rope.scaling.type", "none")
    factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0))
    trained = fields.whole("context_length")
    original = fields.whole("rope.scaling.original_context_length", trained)
    attention_factor = fields.number("rope.scaling.attn_factor", 0.0) or None
    fields.harmless(["rope.scaling.finetuned"])
    scaling: RopeScaling | None = None
    if kind == "yarn":
        scaling = RopeScaling("yarn", factor, original, attention_factor=attention_factor)
    elif kind == "linear" or (kind == "none" and factor != 1.0):
        scaling = RopeScaling("linear", factor)
    elif kind not in ("none", "longrope"):
        raise UnsupportedError(f"{fields.path}: rope.scaling.type {kind!r} is not implemented")
    if "rope_freqs.weight" in checkpoint.tensors:
        factors = _factors(checkpoint, "rope_freqs.weight", dims)
        scaling = RopeScaling("factors", attention_factor=1.0, factors=factors)
    elif "rope_factors_long.weight" in checkpoint.tensors:
        which = "long" if context > original else "short"
        factors = _factors(checkpoint, f"rope_factors_{which}.weight", dims)
        scaling = RopeScaling(
            "factors",
            trained / original,
            original,
            attention_factor=attention_factor,
            factors=factors,
        )
    return RopeSpec(base, dims, "half" if style == "half" else "interleaved", scaling)


def _factors(checkpoint: Checkpoint, name: str, dims: int) -> tuple[float, ...]:
    info = checkpoint.tensors.get(name)
    if info is None or info.shape != (dims // 2,):
        raise FormatError(checkpoint.path, f"tensor {name}", f"must hold {dims // 2} factors")
    return tuple(float(f) for f in checkpoint.read(name))
