"""How files say what rotary embedding a model uses: config.json (both generations) and GGUF."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.core.spec import RopeScaling, RopeSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.fields import MAX_NUMBER, Fields


def rope_from_config(config: Fields, dims: int, context: int, default_base: float) -> RopeSpec:
    """RopeSpec of a Hugging Face config: `rope_parameters`, or `rope_theta` and `rope_scaling`.

    `dims` are the features of a head. `context` is the length the model will be used at; it
    settles LongRoPE's choice of factors.
    """
    given: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        value = config.raw(key)
        if not isinstance(value, Mapping | None):
            raise FormatError(config.path, key, "is not an object")
        given.update(value or {})
    base = _base(config, "rope_theta", default_base)
    partial = config.number("partial_rotary_factor", 1.0, low=0.0, high=1.0)
    return rope_from_parameters(config, given, dims, context, base, partial)


def rope_from_parameters(
    config: Fields,
    given: Mapping[str, Any],
    dims: int,
    context: int,
    base: float,
    partial: float = 1.0,
) -> RopeSpec:
    """RopeSpec of one `rope_parameters` object; `base` and `partial` where it does not say."""
    parameters = Fields(given, f"{config.path}: rope_parameters")
    base = _base(parameters, "rope_theta", base)
    dims = int(dims * parameters.number("partial_rotary_factor", partial, low=0.0, high=1.0))
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    parameters.harmless(["type", "finetuned"])
    scaling = _scaling_from(kind, parameters, config, dims, context)
    parameters.finish()
    return RopeSpec(base, dims, "half", scaling)


def _scaling_from(
    kind: str, parameters: Fields, config: Fields, dims: int, context: int
) -> RopeScaling | None:
    trained = config.whole("max_position_embeddings")
    # Phi-3 has the original length beside the parameters; others within.
    original = config.whole(
        "original_max_position_embeddings",
        parameters.whole("original_max_position_embeddings", trained),
    )
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", _factor(parameters, "factor"))
    if kind == "dynamic":
        parameters.only("original_max_position_embeddings", trained)
        if dims <= 2:
            raise FormatError(config.path, "rotary dimensions", f"{dims} are too few for dynamic")
        return RopeScaling("dynamic", _stretch(parameters), trained)
    if kind == "llama3":
        return _llama3(parameters, original)
    if kind in ("longrope", "su"):
        return _longrope(parameters, dims, context, trained, original)
    if kind == "yarn":
        # Phi-3 once called LongRoPE that.
        if "long_factor" in parameters:
            return _longrope(parameters, dims, context, trained, original)
        return _yarn(parameters, trained, original)
    raise UnsupportedError(f"{config.path}: rope_type {kind!r} is not implemented")


def _base(fields: Fields, key: str, default: float) -> float:
    return fields.number(key, default, low=1.001, high=1e15)  # 10,000 to 10^9 in use


def _factor(fields: Fields, key: str, default: float | None = None) -> float:
    """A number that something is multiplied or divided by."""
    return fields.number(key, default, low=1e-4, high=1e6)


def _stretch(parameters: Fields, default: float | None = None) -> float:
    """The `factor` of kinds that only ever lengthen a context."""
    return parameters.number("factor", default, low=1.0, high=1e6)


def _llama3(parameters: Fields, original: int) -> RopeScaling:
    low, high = _factor(parameters, "low_freq_factor"), _factor(parameters, "high_freq_factor")
    if not low < high:
        problem = f"{high} is not above low_freq_factor, {low}"
        raise FormatError(parameters.path, "high_freq_factor", problem)
    factor = _factor(parameters, "factor")
    return RopeScaling("llama3", factor, original, low_freq_factor=low, high_freq_factor=high)


def _yarn(parameters: Fields, trained: int, original: int) -> RopeScaling:
    parameters.only("truncate", True)
    factor = _stretch(parameters, trained / original)
    attention = _optional(parameters, "attention_factor")
    scale, scale_all = (
        parameters.number(key, 0.0, low=0.0, high=1e6) for key in ("mscale", "mscale_all_dim")
    )
    if attention is None and scale and scale_all:  # 0 is none
        attention = _yarn_attention(factor, scale) / _yarn_attention(factor, scale_all)
    return RopeScaling(
        "yarn",
        factor,
        original,
        beta_fast=_factor(parameters, "beta_fast", 32.0),
        beta_slow=_factor(parameters, "beta_slow", 1.0),
        attention_factor=attention,
    )


def _yarn_attention(factor: float, scale: float = 1.0) -> float:
    """How far YaRN sharpens attention; `scale` as DeepSeek weighs it."""
    return 0.1 * scale * math.log(factor) + 1.0


def _longrope(
    parameters: Fields, dims: int, context: int, trained: int, original: int
) -> RopeScaling:
    factor = _stretch(parameters, max(trained / original, 1.0))
    if original < 2:
        raise FormatError(parameters.path, "original_max_position_embeddings", f"is {original}")
    used, unused = ("long", "short") if context > original else ("short", "long")
    _factor_list(parameters, f"{unused}_factor", dims)
    return RopeScaling(
        "factors",
        factor,
        original,
        attention_factor=_optional(parameters, "attention_factor"),
        factors=_factor_list(parameters, f"{used}_factor", dims),
    )


def _factor_list(parameters: Fields, key: str, dims: int) -> tuple[float, ...]:
    values = parameters.raw(key)
    if (
        not isinstance(values, list)
        or len(values) != dims // 2
        or not all(isinstance(value, int | float) and 0 < value <= MAX_NUMBER for value in values)
    ):
        raise FormatError(parameters.path, key, f"must list {dims // 2} numbers above 0")
    return tuple(float(value) for value in values)


def _optional(fields: Fields, key: str) -> float | None:
    return _factor(fields, key) if key in fields else None


def rope_from_gguf(
    fields: Fields, checkpoint: Checkpoint, head_dim: int, context: int, style: str
) -> RopeSpec:
    """RopeSpec of a GGUF file's `*.rope.*` keys and its `rope_*` tensors.

    `style` is "half" or "interleaved", which the format leaves to the architecture.
    """
    dims = fields.whole("rope.dimension_count", head_dim)
    base = _base(fields, "rope.freq_base", 10000.0)
    fields.harmless(["rope.scaling.finetuned"])
    scaling = _scaling_from_gguf(fields, checkpoint, dims, context)
    return RopeSpec(base, dims, "half" if style == "half" else "interleaved", scaling)


def _scaling_from_gguf(
    fields: Fields, checkpoint: Checkpoint, dims: int, context: int
) -> RopeScaling | None:
    kind = fields.text("rope.scaling.type", "linear")
    # 0 stands for none; with type "none" the factor does not count.
    old_name = fields.number("rope.scale_linear", 0.0, low=0.0, high=1e6)
    factor = fields.number("rope.scaling.factor", old_name, low=0.0, high=1e6) or 1.0
    if kind == "none":
        factor = 1.0
    original = fields.whole("rope.scaling.original_context_length", fields.whole("context_length"))
    attention = _factor(fields, "rope.scaling.attn_factor", 1.0)
    name = _factor_tensor(checkpoint, kind, context > original)
    if name is not None and factor == 1.0 and kind != "yarn":
        factors = _factors(checkpoint, name, dims)
        return RopeScaling("factors", 1.0, original, attention_factor=attention, factors=factors)
    if kind == "yarn" and name is None:
        return _yarn_from_gguf(fields, factor, original, attention)
    if kind in ("none", "linear") and name is None and attention == 1.0:
        return RopeScaling("linear", factor) if factor != 1.0 else None
    raise UnsupportedError(
        f"{fields.path}: {fields.prefix}rope.scaling.type {kind!r} with factor {factor:g}, "
        f"attn_factor {attention:g} and {name or 'no tensor of factors'} is not implemented"
    )


def _yarn_from_gguf(fields: Fields, factor: float, original: int, attention: float) -> RopeScaling:
    fields.only("rope.scaling.yarn_ext_factor", 1.0)
    own = _yarn_attention(factor) if factor > 1.0 else 1.0
    weighed = fields.number("rope.scaling.yarn_log_multiplier", 0.0, low=0.0, high=1e3)
    if weighed and factor > 1.0:
        own /= _yarn_attention(factor, weighed)
    return RopeScaling(
        "yarn",
        factor,
        original,
        beta_fast=_factor(fields, "rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=_factor(fields, "rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=attention * _factor(fields, "rope.scaling.yarn_attn_factor", own),
    )


def _factor_tensor(checkpoint: Checkpoint, kind: str, long: bool) -> str | None:
    """The tensor whose factors divide the frequencies: Llama 3.1's, or LongRoPE's."""
    if "rope_freqs.weight" in checkpoint.tensors:
        return "rope_freqs.weight"
    if kind == "longrope" or "rope_factors_long.weight" in checkpoint.tensors:
        return f"rope_factors_{'long' if long else 'short'}.weight"
    return None


def _factors(checkpoint: Checkpoint, name: str, dims: int) -> tuple[float, ...]:
    info = checkpoint.tensors.get(name)
    if info is None or info.shape != (dims // 2,):
        raise FormatError(checkpoint.path, f"tensor {name}", f"must hold {dims // 2} factors")
    factors = tuple(float(f) for f in checkpoint.read(name))
    if not all(0.0 < f <= MAX_NUMBER for f in factors):
        raise FormatError(checkpoint.path, f"tensor {name}", "must hold numbers above 0")
    return factors
