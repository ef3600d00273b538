"""A model's specification as GGUF metadata, for every family that the loader reads back.

`model_keys` writes what the format has keys for; whether that is everything is then seen by
reading it back (`folder.py`), so that no file comes to be that means another model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from pellucid.core.errors import UnsupportedError
from pellucid.core.spec import LayerSpec, ModelSpec, RopeScaling
from pellucid.formats.gguf_write import Value
from pellucid.ops.rotary import attention_factor, frequencies

Keys = dict[str, Value]

# Families whose files go by another family's architecture.
_ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe"}


def architecture(spec: ModelSpec) -> str:
    return _ARCHITECTURES.get(spec.family, spec.family)


def model_keys(spec: ModelSpec) -> Keys:
    """`general.architecture` and the architecture's own keys."""
    name = architecture(spec)
    own = {**_sizes(spec), **_FAMILIES[spec.family](spec)}
    prefixed = {f"{name}.{key}": value for key, value in own.items()}
    return {"general.architecture": _text(name), "general.type": _text("model"), **prefixed}


def _whole(value: int) -> Value:
    return Value("uint32", value)


def _real(value: float) -> Value:
    return Value("float32", value)


def _text(value: str) -> Value:
    return Value("string", value)


def _sizes(spec: ModelSpec) -> Keys:
    layer = spec.layers[0]
    return {
        "context_length": _whole(spec.context_length),
        "embedding_length": _whole(spec.d_model),
        "block_count": _whole(spec.n_layers),
        "feed_forward_length": _whole(layer.ffn_dim),
        "attention.head_count": _whole(layer.n_heads),
        "attention.head_count_kv": _whole(layer.n_kv_heads),
        "vocab_size": _whole(spec.vocab_size),
    }


def _rotary_family(spec: ModelSpec) -> Keys:
    """What all families after Llama have: RMSNorm, rotary positions, heads of any width."""
    layer = spec.layers[-1]  # in Gemma 3 the last of each period is a far one
    far = next((one for one in spec.layers if one.window is None), layer)
    rope = far.rope
    if rope is None:
        raise UnsupportedError(f"GGUF has no form of {spec.family} without rotary positions")
    return {
        "attention.layer_norm_rms_epsilon": _real(spec.norm_eps),
        "attention.key_length": _whole(layer.head_dim),
        "attention.value_length": _whole(layer.head_dim),
        "rope.dimension_count": _whole(rope.dims),
        "rope.freq_base": _real(rope.base),
        **(_scaling(rope.scaling) if rope.scaling is not None else {}),
    }


def _scaling(scaling: RopeScaling) -> Keys:
    if scaling.kind == "linear":
        return {
            "rope.scaling.type": _text("linear"),
            "rope.scaling.factor": _real(scaling.factor),
        }
    original = {"rope.scaling.original_context_length": _whole(scaling.original_context)}
    if scaling.kind == "yarn":
        own = {
            "rope.scaling.type": _text("yarn"),
            "rope.scaling.factor": _real(scaling.factor),
            **original,
            "rope.scaling.yarn_beta_fast": _real(scaling.beta_fast),
            "rope.scaling.yarn_beta_slow": _real(scaling.beta_slow),
        }
        if scaling.attention_factor is not None:
            own["rope.scaling.yarn_attn_factor"] = _real(scaling.attention_factor)
        return own
    if scaling.kind == "llama3":  # its factors are a tensor
        return {}
    if scaling.kind == "factors":
        return {**original, "rope.scaling.attn_factor": _real(attention_factor(scaling))}
    raise UnsupportedError(f"GGUF has no key for {scaling.kind} scaling of rotary positions")


def _llama(spec: ModelSpec) -> Keys:
    layer = spec.layers[0]
    keys = _rotary_family(spec)
    if layer.window is not None:
        keys["attention.sliding_window"] = _whole(layer.window)
    if layer.n_experts:
        keys |= _experts(layer)
    return keys


def _experts(layer: LayerSpec) -> Keys:
    return {
        "expert_count": _whole(layer.n_experts),
        "expert_used_count": _whole(layer.n_experts_used),
    }


def _qwen3_moe(spec: ModelSpec) -> Keys:
    layer = spec.layers[0]
    if any(not one.n_experts for one in spec.layers):
        raise UnsupportedError("GGUF cannot say which layers are dense between those of experts")
    return {
        **_rotary_family(spec),
        **_experts(layer),
        "expert_feed_forward_length": _whole(layer.ffn_dim),
        "expert_weights_norm": Value("bool", layer.normalize_expert_weights),
    }


def _phi3(spec: ModelSpec) -> Keys:
    window = spec.layers[0].window
    slides = {"attention.sliding_window": _whole(window)} if window is not None else {}
    return {**_rotary_family(spec), **slides}


def _gemma_with_windows(spec: ModelSpec) -> Keys:
    layer = spec.layers[0]
    keys = _rotary_family(spec)
    windows = [one.window for one in spec.layers]
    window = next((w for w in windows if w is not None), None)
    if window is not None:
        keys["attention.sliding_window"] = _whole(window)
        full_every = {"gemma2": 2, "gemma3": 6}[spec.family]
        near = [w is not None for w in windows]
        if near != [(i + 1) % full_every != 0 for i in range(len(near))]:
            keys["attention.sliding_window_pattern"] = Value("array of bool", near)
    caps = {
        "attn_logit_softcapping": layer.attention_softcap,
        "final_logit_softcapping": spec.logit_softcap,
    }
    keys |= {key: _real(cap) for key, cap in caps.items() if cap is not None}
    near_rope = next((one.rope for one in spec.layers if one.window is not None), None)
    if spec.family == "gemma3" and near_rope is not None:
        keys["rope.freq_base_swa"] = _real(near_rope.base)
    return keys


def _layer_norm_family(spec: ModelSpec) -> Keys:
    return {"attention.layer_norm_epsilon": _real(spec.norm_eps)}


def _mpt(spec: ModelSpec) -> Keys:
    slopes = spec.layers[0].alibi_slopes
    clip = spec.extra.get("clip_qkv")
    return {
        **_layer_norm_family(spec),
        "attention.max_alibi_bias": _real(_alibi_bias(slopes)),
        **({"attention.clamp_kqv": _real(float(clip))} if clip is not None else {}),
    }


def _alibi_bias(slopes: tuple[float, ...]) -> float:
    """The bias whose slopes these are: the smallest is 2^-bias for heads in a power of two, and
    of any other number those of the power below come first (Press et al. 2022)."""
    power = 1 << (len(slopes).bit_length() - 1)
    return -math.log2(slopes[power - 1])


_FAMILIES: dict[str, Callable[[ModelSpec], Keys]] = {
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _llama,
    "qwen2": _rotary_family,
    "qwen3": _rotary_family,
    "qwen3_moe": _qwen3_moe,
    "phi3": _phi3,
    "gemma": _rotary_family,
    "gemma2": _gemma_with_windows,
    "gemma3": _gemma_with_windows,
    "gpt2": _layer_norm_family,
    "bloom": _layer_norm_family,
    "mpt": _mpt,
}


def differences(one: ModelSpec, other: ModelSpec) -> Iterator[str]:
    """What two specifications do not say alike, up to the rounding of single precision."""
    for name in ("d_model", "vocab_size", "context_length", "tied_head", "n_layers"):
        if getattr(one, name) != getattr(other, name):
            yield name
    for name in ("norm_eps", "embedding_scale", "logit_softcap", "logit_scale"):
        if not _close(getattr(one, name), getattr(other, name)):
            yield name
    for name in ("exact_gelu", "clip_qkv"):
        if not _close(one.extra.get(name), other.extra.get(name)):
            yield name
    for a, b in zip(one.layers, other.layers, strict=False):
        yield from _layer_differences(a, b)


def _layer_differences(a: LayerSpec, b: LayerSpec) -> Iterator[str]:
    for name in (
        "n_heads",
        "n_kv_heads",
        "head_dim",
        "ffn_dim",
        "window",
        "n_experts",
        "n_experts_used",
        "normalize_expert_weights",
    ):
        if getattr(a, name) != getattr(b, name):
            yield name
    for name in ("attention_scale", "attention_softcap"):
        if not _close(getattr(a, name), getattr(b, name)):
            yield name
    if len(a.alibi_slopes) != len(b.alibi_slopes) or not all(
        map(_close, a.alibi_slopes, b.alibi_slopes)
    ):
        yield "alibi_slopes"
    if not _same_turns(a, b):
        yield "rotary positions"


def _same_turns(a: LayerSpec, b: LayerSpec) -> bool:
    if a.rope is None or b.rope is None:
        return a.rope is b.rope
    if a.rope.dims != b.rope.dims:
        return False
    positions = np.arange(1, dtype=np.int32)
    one, other = frequencies(a.rope, positions), frequencies(b.rope, positions)
    factors = attention_factor(a.rope.scaling), attention_factor(b.rope.scaling)
    return np.allclose(one, other, rtol=1e-5, atol=0) and _close(*factors)


def _close(a: float | str | None, b: float | str | None) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= 1e-6 * max(abs(a), abs(b))
    return a == b
