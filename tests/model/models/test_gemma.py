"""Gemma 1, 2 and 3 against transformers, past their windows, and their GGUF forms."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pellucid.core.spec import LayerSpec
from pellucid.formats import open_checkpoint
from pellucid.models.registry import Model, load_model, read_spec
from pellucid.ops.reference import ReferenceOps

from .gguf_twin import Recipe, State, common_keys
from .runner import (
    Built,
    Case,
    Disagreement,
    FamilySuite,
    assert_agree,
    changed,
    dropped,
    layer_with,
    other_gelu,
    run,
    window_off_by,
    without_norm,
    wrong_layer,
    wrong_rope_sign,
    wrong_spec,
    zero_logits,
)


def convert(state: State, config: Any) -> State:
    """The 1 of the norms is baked in, and the head is left out."""
    return {
        name: array + 1 if name.endswith("norm.weight") else array
        for name, array in state.items()
        if name != "lm_head.weight"
    }


def gemma2_keys(writer: gguf.GGUFWriter, config: Any) -> None:
    common_keys(writer, config)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)


def gemma3_keys(writer: gguf.GGUFWriter, config: Any) -> None:
    common_keys(writer, config)
    far = config.rope_parameters["full_attention"]
    writer.add_rope_freq_base(far["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    if far["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(far["factor"])
    writer.add_sliding_window(config.sliding_window)


BASE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
}

FAULTS = {
    "zero logits": zero_logits,
    "one wrong rope sign": wrong_rope_sign,
    "unscaled embeddings": wrong_spec(embedding_scale=1.0),
    "norms without their 1": changed("blk.1.ffn_norm.weight", lambda w: w - 1),
}


class TestGemma(FamilySuite):
    CASES: ClassVar[dict[str, Case]] = {
        "one key-value head": Case(
            "GemmaConfig",
            {**BASE, "num_key_value_heads": 1},
            {**FAULTS, "the other GELU": other_gelu},
            Recipe("gemma", common_keys, convert),
        ),
        "biased, untied": Case(
            "GemmaConfig",
            {**BASE, "attention_bias": True, "tie_word_embeddings": False},
            {"a dropped bias": dropped("blk.0.attn_v.bias")},
        ),
    }


GEMMA2 = {
    **BASE,
    "num_hidden_layers": 3,
    "sliding_window": 8,
    "query_pre_attn_scalar": 16,
    "attn_logit_softcapping": 3.0,
    "final_logit_softcapping": 4.0,
}


def uncapped(layer: LayerSpec) -> LayerSpec:
    return dataclasses.replace(layer, attention_softcap=None)


def windows_swapped(model: Model) -> Model:
    """Layers that should see everything see a window, and the others everything."""
    layers = tuple(
        dataclasses.replace(layer, window=8 if layer.window is None else None)
        for layer in model.spec.layers
    )
    return wrong_spec(layers=layers)(model)


class TestGemma2(FamilySuite):
    CASES: ClassVar[dict[str, Case]] = {
        "caps that bite": Case(
            "Gemma2Config",
            GEMMA2,
            {
                **FAULTS,
                "the other GELU": other_gelu,
                "no soft cap on scores": wrong_layer(uncapped, 2),
                "no soft cap on logits": wrong_spec(logit_softcap=None),
                "a window one too long": window_off_by(1),
                "a window one too short": window_off_by(-1),
                "near and far swapped": windows_swapped,
                "no norm after attention": without_norm("blk.0.post_attention_norm.weight"),
                "no norm after the MLP": without_norm("blk.2.post_ffw_norm.weight"),
            },
            Recipe("gemma2", gemma2_keys, convert),
            lengths=(1, 8, 9, 33),
        ),
        "own query scale and layers, no caps": Case(
            "Gemma2Config",
            {
                **GEMMA2,
                "query_pre_attn_scalar": 10,
                "attn_logit_softcapping": None,
                "final_logit_softcapping": None,
                "layer_types": ["full_attention", "full_attention", "sliding_attention"],
            },
            {"scaled by the head": wrong_layer(layer_with(attention_scale=0.25))},
            not_in_gguf="attention_scale, attention_softcap",
        ),
    }


GEMMA3 = {
    **BASE,
    "num_hidden_layers": 7,
    "sliding_window": 8,
    "query_pre_attn_scalar": 16,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}


def base_of_far_layers(layer: LayerSpec) -> LayerSpec:
    return dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, base=1e6))


def unscaled_rope(layer: LayerSpec) -> LayerSpec:
    return dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, scaling=None))


class TestGemma3(FamilySuite):
    CASES: ClassVar[dict[str, Case]] = {
        "five near, one far": Case(
            "Gemma3TextConfig",
            GEMMA3,
            {
                **FAULTS,
                "one base for all": wrong_layer(base_of_far_layers),
                "far positions unscaled": wrong_layer(unscaled_rope, 5),
                "a window one too long": window_off_by(1),
                "a window one too short": window_off_by(-1),
                "queries not normed": without_norm("blk.3.attn_q_norm.weight"),
                "keys' norm without its 1": changed("blk.5.attn_k_norm.weight", lambda w: w - 1),
                "no norm after the MLP": without_norm("blk.6.post_ffw_norm.weight"),
            },
            Recipe("gemma3", gemma3_keys, convert),
            lengths=(1, 8, 9, 33),
        ),
        "every third far, capped, own scale": Case(
            "Gemma3TextConfig",
            {
                **GEMMA3,
                "num_hidden_layers": 4,
                "sliding_window_pattern": 3,
                "query_pre_attn_scalar": 10,
                "final_logit_softcapping": 4.0,
            },
            {"no soft cap on logits": wrong_spec(logit_softcap=None)},
            not_in_gguf="attention_scale",
        ),
    }


def older(config: dict[str, Any]) -> dict[str, Any]:
    """A config.json as transformers wrote it before version 5."""
    old = {key: value for key, value in config.items() if key not in ("rope_parameters", "dtype")}
    rope = config["rope_parameters"]
    if "full_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    old["rope_scaling"] = scaling if scaling["rope_type"] != "default" else None
    return {**old, "rope_theta": rope["rope_theta"], "torch_dtype": "float32"}


@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        (TestGemma.CASES["one key-value head"], None),
        (TestGemma2.CASES["caps that bite"], None),
        (TestGemma3.CASES["five near, one far"], None),
        (TestGemma3.CASES["every third far, capped, own scale"], 3),
    ],
)
def test_an_older_configuration_says_the_same(
    case: Case, pattern: int | None, tmp_path: Path
) -> None:
    built = Built(case, tmp_path)
    old = older(built.config)
    old.pop("layer_types", None)  # the pattern, or its default, says it
    old.pop("_sliding_window_pattern", None)
    if pattern is not None:
        old["sliding_window_pattern"] = pattern
    spec = built.spec
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert read_spec(open_checkpoint(tmp_path))[1] == spec


WITH_EYES = Case(
    "Gemma3Config",
    {
        "text_config": {**GEMMA3, "num_hidden_layers": 3, "sliding_window_pattern": 2},
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        "mm_tokens_per_image": 4,
    },
)


def test_a_model_with_eyes_reads_text(tmp_path: Path) -> None:
    """Gemma3ForConditionalGeneration; then the same tensors under their newer names, with
    `model.language_model.` and `model.vision_tower.` before them."""
    built = Built(WITH_EYES, tmp_path / "old")
    tokens = built.tokens(33)
    ours = run(built.model, tokens)
    assert_agree(ours, built.truth(tokens), built.spec, "text")
    with pytest.raises(Disagreement):
        wrong = run(window_off_by(1)(built.model), tokens)
        assert_agree(wrong, built.truth(tokens), built.spec, "window")

    renamed = {
        name.replace("language_model.model.", "model.language_model.")
        if name.startswith("language_model.")
        else f"model.{name}": array
        for name, array in load_file(built.folder / "model.safetensors").items()
    }
    new = tmp_path / "new"
    new.mkdir()
    save_file(renamed, new / "model.safetensors")
    shutil.copy(built.folder / "config.json", new)
    model = load_model(open_checkpoint(new), ReferenceOps())
    np.testing.assert_array_equal(run(model, tokens), ours)
