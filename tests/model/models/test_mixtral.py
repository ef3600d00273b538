"""Mixtral against transformers: experts that a router chooses; its GGUF form is Llama's."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, ClassVar

import gguf
import numpy as np

from pellucid.core.spec import LayerSpec

from .gguf_twin import Recipe, State, stacked
from .runner import (
    Case,
    FamilySuite,
    changed,
    window_off_by,
    wrong_layer,
    wrong_rope_sign,
    zero_logits,
)
from .test_llama import BASE
from .test_llama import convert as convert_llama
from .test_llama import keys as llama_keys


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    llama_keys(writer, config)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)


def with_stacked_experts(state: State, gguf_block: str) -> State:
    """Each expert's matrices, layers.L.block.experts.E.part, as layers.L.`gguf_block`.part."""
    together: dict[str, dict[int, Any]] = {}
    out: State = {}
    for name, array in state.items():
        found = re.fullmatch(r"model\.(layers\.\d+)\.\w+\.experts\.(\d+)\.(\w+)\.weight", name)
        if found is None:
            out[name] = array
        else:
            key = f"{found[1]}.{gguf_block}.{found[3]}.weight"
            together.setdefault(key, {})[int(found[2])] = array
    for key, parts in together.items():
        out[key] = stacked(parts[e] for e in range(len(parts)))
    return out


def convert(state: State, config: Any) -> State:
    return with_stacked_experts(convert_llama(state, config), "feed_forward.experts")


GGUF = Recipe("mixtral", keys, convert)
GGUF = dataclasses.replace(GGUF, architecture="llama")
SETTINGS = {**BASE, "num_local_experts": 5, "num_experts_per_tok": 2}


def one_expert_fewer(layer: LayerSpec) -> LayerSpec:
    return dataclasses.replace(layer, n_experts_used=layer.n_experts_used - 1)


def shares_as_they_are(layer: LayerSpec) -> LayerSpec:
    return dataclasses.replace(layer, normalize_expert_weights=not layer.normalize_expert_weights)


def experts_exchanged(weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return weight[::-1]


FAULTS = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "one expert fewer": wrong_layer(one_expert_fewer, 1),
    "shares that do not sum to 1": wrong_layer(shares_as_they_are),
    "experts exchanged": changed("blk.0.ffn_up_exps.weight", experts_exchanged),
    "the router's rows exchanged": changed("blk.1.ffn_gate_inp.weight", experts_exchanged),
}


class TestMixtral(FamilySuite):
    CASES: ClassVar = {
        "plain": Case("MixtralConfig", SETTINGS, FAULTS, GGUF),
        "all experts, a window": Case(
            "MixtralConfig",
            {**SETTINGS, "num_experts_per_tok": 5, "sliding_window": 6},
            {"a window longer by one": window_off_by(1)},
            seed=1,
        ),
    }
