"""MPT against transformers, and its GGUF form."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gguf
import numpy as np
import pytest

from pellucid.core.spec import LayerSpec
from pellucid.models.registry import Model
from pellucid.ops.reference import ReferenceOps

from .gguf_twin import Float32, Recipe
from .runner import (
    Built,
    Case,
    Disagreement,
    FamilySuite,
    ask,
    assert_agree,
    dropped,
    layer_with,
    other_gelu,
    run,
    without_norm,
    wrong_layer,
    wrong_spec,
    zero_logits,
)


def keys(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_seq_len)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(4 * config.d_model)
    writer.add_head_count(config.n_heads)
    writer.add_layer_norm_eps(1e-5)
    if config.attn_config.clip_qkv is not None:
        writer.add_clamp_kqv(config.attn_config.clip_qkv)
    writer.add_max_alibi_bias(config.attn_config.alibi_bias_max)


GGUF = Recipe("mpt", keys)


def reversed_slopes(layer: LayerSpec) -> LayerSpec:
    return dataclasses.replace(layer, alibi_slopes=layer.alibi_slopes[::-1])


def halved_slopes(layer: LayerSpec) -> LayerSpec:
    return dataclasses.replace(layer, alibi_slopes=tuple(s / 2 for s in layer.alibi_slopes))


def clipped_outside_queries(model: Model) -> Model:
    """Only keys and values held within the limit."""

    class Partly(ReferenceOps):
        def clamp(self, x: Float32, limit: float) -> Float32:
            y = super().clamp(x, limit)
            y[:, : x.shape[1] // 3] = x[:, : x.shape[1] // 3]
            return y

    return dataclasses.replace(model, ops=Partly())


FAULTS = {
    "zero logits": zero_logits,
    "slopes in another order": wrong_layer(reversed_slopes, 1),
    "slopes of another base": wrong_layer(
        lambda layer: dataclasses.replace(
            layer, alibi_slopes=tuple(s / 2 for s in layer.alibi_slopes)
        )
    ),
    "no final norm": without_norm("output_norm.weight"),
    "the other GELU": other_gelu,
}

BASE = {"vocab_size": 96, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 64}


class TestMPT(FamilySuite):
    CASES: ClassVar[dict[str, Case]] = {
        "six heads": Case("MptConfig", BASE, FAULTS, GGUF),
        "eight heads, clipped": Case(
            "MptConfig",
            {**BASE, "n_heads": 8, "attn_config": {"clip_qkv": 0.8}},
            {
                "no clipping": wrong_spec(extra={"biased": False}),
                "queries not clipped": clipped_outside_queries,
            },
            GGUF,
        ),
        "own softmax scale, untied": Case(
            "MptConfig",
            {**BASE, "attn_config": {"softmax_scale": 0.2}, "tie_word_embeddings": False},
            {"the usual scale": wrong_layer(layer_with(attention_scale=8**-0.5))},
            not_in_gguf="attention_scale",
        ),
    }


def test_alibi_bias_max_counts(tmp_path: Path) -> None:
    """Transformers builds slopes for 8 whatever the file says; told 16, it agrees with us."""
    case = Case("MptConfig", {**BASE, "attn_config": {"alibi_bias_max": 16}}, gguf=GGUF)
    built = Built(case, tmp_path)
    inner = built.judge.transformer
    inner.build_mpt_alibi_tensor = partial(inner.build_mpt_alibi_tensor, alibi_bias_max=16)
    tokens = built.tokens(33)
    assert_agree(run(built.model, tokens), ask(built.judge, tokens), built.spec, "safetensors")
    assert_agree(run(built.gguf_model, tokens), ask(built.judge, tokens), built.spec, "GGUF")


def test_logit_scale_counts(tmp_path: Path) -> None:
    """Transformers leaves it out; the code the models were trained with multiplies by it."""
    built = Built(Case("MptConfig", {**BASE, "logit_scale": "inv_sqrt_d_model"}), tmp_path)
    tokens = built.tokens(9)
    scaled = ask(built.judge, tokens) * np.float32(48**-0.5)
    assert_agree(run(built.model, tokens), scaled, built.spec, "scaled logits")


def test_biases_count(tmp_path: Path) -> None:
    """Transformers makes MPT without biases; given some, as `no_bias` false has them, it agrees."""
    import torch

    built = Built(Case("MptConfig", {**BASE, "no_bias": False}, gguf=GGUF), tmp_path)
    rng = np.random.RandomState(1)
    for module in built.judge.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.LayerNorm) and (
            module is not built.judge.lm_head
        ):
            noise = 0.3 * rng.standard_normal(len(module.weight))
            module.bias = torch.nn.Parameter(torch.from_numpy(noise.astype(np.float32)))
    built.judge.save_pretrained(tmp_path)
    tokens = built.tokens(9)
    assert_agree(run(built.model, tokens), built.truth(tokens), built.spec, "biased")
    assert_agree(run(built.gguf_model, tokens), built.truth(tokens), built.spec, "biased GGUF")
    for name in "blk.0.attn_qkv.bias", "blk.1.ffn_down.bias", "output_norm.bias":
        with pytest.raises(Disagreement):
            wrong = run(dropped(name)(built.model), tokens)
            assert_agree(wrong, built.truth(tokens), built.spec, name)
