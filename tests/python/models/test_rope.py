"""How files state their rotary embedding: both generations of config.json, and GGUF."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.core.errors import BadInput
from pellucid.core.spec import RopeScaling, RopeSpec
from pellucid.formats import Checkpoint, Metadata, TensorInfo
from pellucid.models.fields import Fields
from pellucid.models.rope import rope_from_config, rope_from_gguf
from pellucid.ops.rotary import attention_factor
from pellucid.quant.types import TensorType

TRAINED = 4096


def first(scaling: dict[str, Any] | None, *, context: int = TRAINED, **keys: Any) -> RopeSpec:
    """Of a configuration with `rope_theta` and `rope_scaling`."""
    given = {"rope_theta": 5000.0, "rope_scaling": scaling, **keys}
    return _read(given, context)


def second(parameters: dict[str, Any], *, context: int = TRAINED, **keys: Any) -> RopeSpec:
    """Of a configuration with `rope_parameters`."""
    return _read({"rope_parameters": {"rope_theta": 5000.0, **parameters}, **keys}, context)


def _read(values: dict[str, Any], context: int) -> RopeSpec:
    config = Fields({"max_position_embeddings": TRAINED, **values}, "file")
    rope = rope_from_config(config, 8, context, 10000.0)
    config.finish()
    return rope


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
LONG = {"short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [1, 2, 3, 4]}
KINDS: list[tuple[str, dict[str, Any], RopeScaling | None]] = [
    ("default", {}, None),
    ("linear", {"factor": 4}, RopeScaling("linear", 4.0)),
    ("dynamic", {"factor": 2.0}, RopeScaling("dynamic", 2.0, TRAINED)),
    (
        "llama3",
        LLAMA3,
        RopeScaling("llama3", 8.0, 1024, low_freq_factor=1.0, high_freq_factor=4.0),
    ),
    (
        "yarn",
        {"factor": 4.0, "original_max_position_embeddings": 1024, "beta_fast": 16},
        RopeScaling("yarn", 4.0, 1024, beta_fast=16.0),
    ),
    (
        "yarn",
        {"factor": 4.0, "attention_factor": 0.5, "finetuned": True},
        RopeScaling("yarn", 4.0, TRAINED, attention_factor=0.5),
    ),
    (
        "longrope",
        {**LONG, "original_max_position_embeddings": 1024},
        RopeScaling("factors", 4.0, 1024, factors=(1.0, 2.0, 3.0, 4.0)),
    ),
    (
        "longrope",
        {**LONG, "original_max_position_embeddings": 4096, "factor": 32.0},
        RopeScaling("factors", 32.0, 4096, factors=(1.0, 1.5, 2.0, 2.5)),
    ),
]


@pytest.mark.parametrize(("kind", "keys", "expected"), KINDS)
def test_every_kind_in_both_generations(
    kind: str, keys: dict[str, Any], expected: RopeScaling | None
) -> None:
    spec = RopeSpec(5000.0, 8, "half", expected)
    assert first({"type": kind, **keys}) == spec
    assert first({"rope_type": kind, **keys}) == spec
    assert second({"rope_type": kind, **keys}) == spec


def test_without_a_word_it_is_plain() -> None:
    assert _read({}, TRAINED) == RopeSpec(10000.0, 8)
    assert first(None) == RopeSpec(5000.0, 8)


def test_original_context_beside_the_parameters_goes_first() -> None:
    keys = {**LONG, "type": "su", "original_max_position_embeddings": 2048}
    rope = first(keys, original_max_position_embeddings=1024)
    assert rope.scaling is not None and rope.scaling.original_context == 1024


def test_longrope_under_the_name_that_phi_3_once_gave_it() -> None:
    rope = first({"type": "yarn", **LONG}, original_max_position_embeddings=1024)
    assert rope == first({"type": "su", **LONG}, original_max_position_embeddings=1024)


@pytest.mark.parametrize("context", [1, 1024, 1025, 100_000])
def test_longrope_chooses_by_the_context_in_use(context: int) -> None:
    rope = first({"type": "su", **LONG}, context=context, original_max_position_embeddings=1024)
    assert rope.scaling is not None
    assert rope.scaling.factors[1] == (2.0 if context > 1024 else 1.5)


def test_part_of_a_head_turns() -> None:
    assert first(None, partial_rotary_factor=0.5).dims == 4
    assert second({"rope_type": "default", "partial_rotary_factor": 0.75}).dims == 6


def test_deepseeks_weights_of_yarns_sharpness() -> None:
    keys = {"factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.1}
    expected = (0.07 * math.log(4) + 1) / (0.11 * math.log(4) + 1)
    assert attention_factor(first({"type": "yarn", **keys}).scaling) == pytest.approx(expected)
    own = first({"type": "yarn", "factor": 4.0})
    for key in ("mscale", "mscale_all_dim"):
        assert first({"type": "yarn", **keys, key: 0.0}) == own  # 0 is none


@pytest.mark.parametrize(
    ("scaling", "named"),
    [
        ({"type": "mrope", "mrope_section": [1, 1]}, "'mrope' is not implemented"),
        ({"type": "proportional"}, "'proportional' is not implemented"),
        ({"type": 5}, "type"),
        ("yarn", "rope_scaling"),
        ([], "rope_scaling"),
        ({"type": "linear"}, "factor: is missing"),
        ({"type": "linear", "factor": 0.0}, "factor"),
        ({"type": "linear", "factor": "2"}, "factor"),
        ({"type": "linear", "factor": 2.0, "beta": 1}, "beta"),
        ({"type": "dynamic", "factor": 0.5}, "factor"),
        (
            {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 9},
            "original_max_position_embeddings = 9",
        ),
        ({**LLAMA3, "type": "llama3", "high_freq_factor": 1.0}, "high_freq_factor"),
        ({"type": "yarn", "factor": 4.0, "truncate": False}, "truncate"),
        ({"type": "yarn", "factor": 4.0, "beta_slow": -1}, "beta_slow"),
        ({"type": "longrope", **LONG, "long_factor": [1, 2, 3]}, "long_factor: must list 4"),
        ({"type": "longrope", **LONG, "short_factor": [1, 2, 3, 0]}, "short_factor"),
        ({"type": "longrope", **LONG, "short_factor": [1, 2, 3, "4"]}, "short_factor"),
        ({"type": "longrope", **LONG, "short_factor": [1, 2, 3, 10**400]}, "short_factor"),
        ({"type": "longrope", **LONG, "original_max_position_embeddings": 1}, "original"),
        ({"type": "longrope", "short_factor": [1, 2, 3, 4]}, "long_factor"),
        ({"full_attention": {"rope_type": "default"}}, "full_attention"),
    ],
)
def test_what_is_wrong_or_unknown_is_named(scaling: Any, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        first(scaling)


@pytest.mark.parametrize("theta", [0, -1.0, 1.0, 1e300, "10000"])
def test_a_base_that_turns_nothing_is_refused(theta: Any) -> None:
    with pytest.raises(BadInput, match="rope_theta"):
        first(None, rope_theta=theta)


# GGUF


class WithTensors(Checkpoint):
    """A checkpoint whose tensors are arrays in memory."""

    def __init__(self, arrays: dict[str, list[float]]) -> None:
        self.arrays = {name: np.array(values, np.float32) for name, values in arrays.items()}
        infos = {
            name: TensorInfo(name, array.shape, TensorType.F32, 0, array.nbytes)
            for name, array in self.arrays.items()
        }
        super().__init__(Path("file"), "gguf", Metadata(Path("file"), {}), infos, [])

    def read(self, name: str) -> Any:
        return self.arrays[name]


def of_gguf(
    keys: dict[str, Any], arrays: dict[str, list[float]] | None = None, context: int = TRAINED
) -> RopeSpec:
    values = {f"llama.{key}": value for key, value in {"context_length": TRAINED, **keys}.items()}
    fields = Fields(values, "file", "llama.")
    rope = rope_from_gguf(fields, WithTensors(arrays or {}), 8, context, "interleaved")
    fields.finish()
    return rope


def scaling(**keys: Any) -> dict[str, Any]:
    return {f"rope.scaling.{key}": value for key, value in keys.items()}


ORIGINAL = {"original_context_length": 1024}
FREQS = {"rope_freqs.weight": [1.0, 1.0, 4.0, 8.0]}
LONG_TENSORS = {
    "rope_factors_short.weight": [1.0, 1.5, 2.0, 2.5],
    "rope_factors_long.weight": [1.0, 2.0, 3.0, 4.0],
}


@pytest.mark.parametrize(
    ("keys", "arrays", "expected"),
    [
        ({}, {}, None),
        (scaling(type="none", factor=4.0), {}, None),
        (scaling(factor=1.0), {}, None),
        (scaling(factor=0.0), {}, None),
        (scaling(type="linear", factor=4.0), {}, RopeScaling("linear", 4.0)),
        (scaling(factor=4.0, finetuned=False), {}, RopeScaling("linear", 4.0)),
        ({"rope.scale_linear": 4.0}, {}, RopeScaling("linear", 4.0)),
        (
            {},
            FREQS,
            RopeScaling("factors", 1.0, TRAINED, attention_factor=1.0, factors=(1, 1, 4, 8)),
        ),
        (
            scaling(type="longrope", attn_factor=1.25, **ORIGINAL),
            LONG_TENSORS,
            RopeScaling("factors", 1.0, 1024, attention_factor=1.25, factors=(1, 2, 3, 4)),
        ),
        (
            scaling(attn_factor=1.25, original_context_length=TRAINED),
            LONG_TENSORS,
            RopeScaling("factors", 1.0, TRAINED, attention_factor=1.25, factors=(1, 1.5, 2, 2.5)),
        ),
        (
            scaling(type="yarn", factor=4.0, **ORIGINAL),
            {},
            RopeScaling("yarn", 4.0, 1024, attention_factor=0.1 * math.log(4.0) + 1.0),
        ),
        (
            scaling(
                type="yarn",
                factor=4.0,
                yarn_beta_fast=16.0,
                yarn_beta_slow=2.0,
                yarn_attn_factor=1.5,
                attn_factor=2.0,
                yarn_ext_factor=1.0,
                **ORIGINAL,
            ),
            {},
            RopeScaling("yarn", 4.0, 1024, beta_fast=16, beta_slow=2, attention_factor=3.0),
        ),
        (
            scaling(type="yarn", factor=4.0, yarn_log_multiplier=1.0, **ORIGINAL),
            {},
            RopeScaling("yarn", 4.0, 1024, attention_factor=1.0),
        ),
    ],
)
def test_gguf_kinds(
    keys: dict[str, Any], arrays: dict[str, list[float]], expected: RopeScaling | None
) -> None:
    assert of_gguf(keys, arrays) == RopeSpec(10000.0, 8, "interleaved", expected)


@pytest.mark.parametrize(
    ("keys", "arrays", "named"),
    [
        (scaling(type="dynamic", factor=2.0), {}, "'dynamic'"),
        (scaling(type="linear", factor=4.0), FREQS, "rope_freqs.weight is not implemented"),
        (scaling(type="yarn", factor=4.0), FREQS, "rope_freqs.weight is not implemented"),
        (scaling(type="linear", attn_factor=2.0), {}, "attn_factor 2"),
        (scaling(type="longrope"), {}, "rope_factors_short.weight: must hold 4 factors"),
        ({}, {"rope_freqs.weight": [1.0]}, "must hold 4 factors"),
        ({}, {"rope_freqs.weight": [1.0, 2.0, 0.0, 1.0]}, "numbers above 0"),
        ({}, {"rope_freqs.weight": [1.0, 2.0, float("nan"), 1.0]}, "numbers above 0"),
        (scaling(type="yarn", factor=4.0, yarn_ext_factor=0.5), {}, "yarn_ext_factor"),
        (scaling(factor=float("nan")), {}, "factor"),
        (scaling(factor=-1.0), {}, "factor"),
        (scaling(alpha=1000.0), {}, "alpha"),
        ({"rope.freq_base": 0.0}, {}, "freq_base"),
    ],
)
def test_gguf_that_is_wrong_or_unknown_is_named(
    keys: dict[str, Any], arrays: dict[str, list[float]], named: str
) -> None:
    with pytest.raises(BadInput, match=named):
        of_gguf(keys, arrays)
