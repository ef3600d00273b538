"""Which type each tensor of a model gets: the mixes that GGUF files are named after.

A mix has one type for most matrices and a finer one where errors cost most: the head, and in the K
mixes values and the MLP's output in some layers. Which, is the custom of llama.cpp's files, so that
a name means the same size and quality everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pellucid.core.errors import BadInput
from pellucid.quant.types import TensorType, layout

F32, F16, BF16 = TensorType.F32, TensorType.F16, TensorType.BF16
Q8_0, Q6_K = TensorType.Q8_0, TensorType.Q6_K
Q5_K, Q5_0, Q5_1 = TensorType.Q5_K, TensorType.Q5_0, TensorType.Q5_1
Q4_K, Q4_0, Q4_1 = TensorType.Q4_K, TensorType.Q4_0, TensorType.Q4_1

# What takes the place of a type whose blocks rows do not divide into: next in bits per weight.
_SMALLER_BLOCKS = {Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0}
_BLOCK_TENSOR = re.compile(r"blk\.(\d+)\.(.+)\.weight")
# Matrices that stay as they are: tables of positions, and routers, whose few bytes decide much.
_KEPT = frozenset({"ffn_gate_inp", "position_embd", "token_types"})


@dataclass(frozen=True, slots=True)
class Mix:
    """`file_type` is its number in `general.file_type`; `more` the type of those layers' tensors
    that get more bits, `fused` that of Q, K and V in one matrix. `often`: in the first and last
    eighth and every third layer between, not only in the first ones."""

    name: str
    file_type: int
    base: TensorType
    head: TensorType
    more: TensorType | None = None
    fused: TensorType | None = None
    often: bool = False

    @property
    def quantizes(self) -> bool:
        return self.base not in (F32, F16, BF16)


_ALL = (
    Mix("f32", 0, F32, F32),
    Mix("f16", 1, F16, F16),
    Mix("bf16", 32, BF16, BF16),
    Mix("q8_0", 7, Q8_0, Q8_0),
    Mix("q6_k", 18, Q6_K, Q6_K),
    Mix("q5_k_m", 17, Q5_K, Q6_K, Q6_K, Q6_K, often=True),
    Mix("q5_k_s", 16, Q5_K, Q6_K),
    Mix("q5_1", 9, Q5_1, Q6_K),
    Mix("q5_0", 8, Q5_0, Q6_K),
    Mix("q4_k_m", 15, Q4_K, Q6_K, Q6_K, Q5_K, often=True),
    Mix("q4_k_s", 14, Q4_K, Q6_K, Q5_K),
    Mix("q4_1", 3, Q4_1, Q6_K),
    Mix("q4_0", 2, Q4_0, Q6_K),
)
MIXES = {mix.name: mix for mix in _ALL}
ALIASES = {"q5_k": "q5_k_m", "q4_k": "q4_k_m"}


def mix_named(name: str) -> Mix:
    """By name, in any case. Raises `BadInput` with the names there are."""
    key = name.lower()
    mix = MIXES.get(ALIASES.get(key, key))
    if mix is None:
        raise BadInput(f"type {name!r} is none of those that are written: {', '.join(MIXES)}")
    return mix


def is_quantized_in(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is a matrix that a mix speaks of; all others stay as precise as they are."""
    kind = _kind(name)[1]
    return (
        len(shape) >= 2
        and name.endswith(".weight")
        and not kind.endswith("norm")
        and kind not in _KEPT
    )


def wanted_type(mix: Mix, name: str, n_layers: int, *, is_head: bool) -> TensorType:
    """The type that `mix` has for a matrix, whatever its shape. `is_head`: logits come from it."""
    if is_head:
        return mix.head
    layer, kind = _kind(name)
    if layer is None:
        return mix.base
    kind = kind.removesuffix("_exps")
    if kind == "attn_qkv" and mix.fused is not None:
        return mix.fused
    if mix.more is None or kind not in ("attn_v", "ffn_down"):
        return mix.base
    first = layer < n_layers // 8
    if mix.often:
        last = layer >= 7 * n_layers // 8
        more = first or last or (layer - n_layers // 8) % 3 == 2
    else:
        more = layer < 4 if kind == "attn_v" else first
    return mix.more if more else mix.base


def fitting_type(type: TensorType, row: int) -> TensorType:
    """`type`, or what takes its place for rows that its blocks do not divide."""
    if row % layout(type).elements == 0:
        return type
    smaller = _SMALLER_BLOCKS.get(type)
    return F16 if smaller is None else fitting_type(smaller, row)


def _kind(name: str) -> tuple[int | None, str]:
    """Layer and kind: `blk.3.attn_v.weight` -> 3, "attn_v"."""
    found = _BLOCK_TENSOR.fullmatch(name)
    return (int(found[1]), found[2]) if found else (None, name.removesuffix(".weight"))
