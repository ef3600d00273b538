"""Rotary angles with every scaling in use, for all backends.

Angles are float64: at position 4,000 a float32 product is already 2e-4 off.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pellucid.core.spec import RopeScaling, RopeSpec

Float64 = NDArray[np.float64]

KEY_BLOCK = 128  # positions whose keys share an offset


def rotations(
    rope: RopeSpec, positions: NDArray[np.int32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin, float32 [T, dims/2], with the attention factor of the scaling multiplied in."""
    angles = positions.astype(np.float64)[:, None] * frequencies(rope, positions)
    factor = attention_factor(rope.scaling)
    return (
        (np.cos(angles) * factor).astype(np.float32),
        (np.sin(angles) * factor).astype(np.float32),
    )


def key_offsets(
    rope: RopeSpec | None, bias: NDArray[np.float32], head_dim: int, blocks: range
) -> NDArray[np.float32]:
    """What `bias`, added to every key before it is turned, is on average over each block of
    `KEY_BLOCK` positions: float32 [len(blocks), len(bias)]. bias: [kv_heads head_dim].

    Features that turn fast come to nothing on average, slow ones to nearly all of the bias.
    """
    heads = bias.reshape(1, -1, head_dim).astype(np.float64)
    y = np.repeat(heads, len(blocks), axis=0)  # [blocks, kv_heads, head_dim]
    if rope is not None and len(blocks):
        positions = np.arange(blocks.start * KEY_BLOCK, blocks.stop * KEY_BLOCK, dtype=np.int32)
        turns = rotations(rope, positions)
        of_blocks = (part.reshape(len(blocks), KEY_BLOCK, -1).astype(np.float64) for part in turns)
        cos, sin = (part.mean(axis=1)[:, None] for part in of_blocks)
        first, second = turned_pairs(rope)
        a, b = heads[..., first], heads[..., second]
        y[..., first] = a * cos - b * sin
        y[..., second] = b * cos + a * sin
    return y.reshape(len(blocks), -1).astype(np.float32)


def turned_pairs(rope: RopeSpec) -> tuple[slice, slice]:
    """The first and the second features of the pairs that are turned together."""
    half = rope.dims // 2
    if rope.style == "half":
        return slice(0, half), slice(half, rope.dims)
    return slice(0, rope.dims, 2), slice(1, rope.dims, 2)


def frequencies(rope: RopeSpec, positions: NDArray[np.int32]) -> Float64:
    """Radians per position, [1 or T, dims/2]: only `dynamic` differs between positions."""
    exponent = np.arange(0, rope.dims, 2, dtype=np.float64) / rope.dims
    scaling = rope.scaling
    if scaling is not None and scaling.kind == "dynamic":
        return _dynamic_base(rope, scaling, positions)[:, None] ** -exponent
    plain = rope.base**-exponent
    return _scaled(plain, rope, scaling)[None, :]


def attention_factor(scaling: RopeScaling | None) -> float:
    """What cos and sin are multiplied by (YaRN, section 3.4; LongRoPE)."""
    if scaling is None or scaling.kind in ("linear", "dynamic", "llama3"):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.factor <= 1.0:
        return 1.0
    if scaling.kind == "yarn":
        return 0.1 * math.log(scaling.factor) + 1.0
    return math.sqrt(1.0 + math.log(scaling.factor) / math.log(scaling.original_context))


def _scaled(plain: Float64, rope: RopeSpec, scaling: RopeScaling | None) -> Float64:
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "factors":
        return plain / np.asarray(scaling.factors, np.float64)
    if scaling.kind == "llama3":
        return _llama3(plain, scaling)
    return _yarn(plain, rope, scaling)


def _dynamic_base(rope: RopeSpec, scaling: RopeScaling, positions: NDArray[np.int32]) -> Float64:
    """The base that a context just reaching each position would use."""
    length = np.maximum(positions.astype(np.float64) + 1.0, scaling.original_context)
    stretch = scaling.factor * length / scaling.original_context - (scaling.factor - 1.0)
    return np.asarray(rope.base * stretch ** (rope.dims / (rope.dims - 2)), np.float64)


def _llama3(plain: Float64, scaling: RopeScaling) -> Float64:
    """Wavelengths beyond the old context are stretched in full, short ones not at all."""
    turns = scaling.original_context * plain / (2.0 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return keep * plain + (1.0 - keep) * plain / scaling.factor


def _yarn(plain: Float64, rope: RopeSpec, scaling: RopeScaling) -> Float64:
    """Frequencies that turn more than beta_fast times in the old context are kept, those below
    beta_slow interpolated, with a ramp over the feature index between (YaRN, section 3.2)."""

    def feature(turns: float) -> float:
        wavelengths = scaling.original_context / (turns * 2.0 * math.pi)
        return rope.dims * math.log(wavelengths) / (2.0 * math.log(rope.base))

    low = max(math.floor(feature(scaling.beta_fast)), 0)
    high = min(math.ceil(feature(scaling.beta_slow)), rope.dims - 1)
    index = np.arange(rope.dims // 2, dtype=np.float64)
    interpolate = np.clip((index - low) / max(high - low, 0.001), 0.0, 1.0)
    return interpolate * plain / scaling.factor + (1.0 - interpolate) * plain
