"""From configurations to specifications: what published models say is understood, and what is
not implemented is refused by name."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.core.spec import ModelSpec, RopeScaling
from pellucid.formats import Checkpoint, Metadata, TensorInfo
from pellucid.models.registry import FAMILIES, read_spec
from pellucid.quant.types import TensorType

from . import configs


def checkpoint(values: dict[str, Any], kind: Any = "safetensors") -> Checkpoint:
    path = Path("somewhere")
    table = TensorInfo("token_embd.weight", (300, 64), TensorType.F32, 0, 300 * 64 * 4)
    tensors = {} if kind == "safetensors" else {table.name: table}
    return Checkpoint(path, kind, Metadata(path, values), tensors, [])


def spec_of(values: dict[str, Any], context: int | None = None) -> ModelSpec:
    return read_spec(checkpoint(values), context)[1]


def test_llama_2() -> None:
    spec = spec_of(configs.LLAMA_2_7B)
    layer = spec.layers[0]
    assert (spec.family, spec.n_layers, spec.d_model) == ("llama", 32, 4096)
    assert (spec.vocab_size, spec.context_length, spec.norm_eps) == (32000, 4096, 1e-5)
    assert (layer.n_heads, layer.n_kv_heads, layer.head_dim, layer.ffn_dim) == (32, 32, 128, 11008)
    assert layer.attention_scale == pytest.approx(1 / math.sqrt(128), rel=1e-15)
    assert layer.rope is not None
    assert (layer.rope.base, layer.rope.dims, layer.rope.scaling) == (10000.0, 128, None)
    assert not spec.tied_head and layer.window is None


def test_llama_3_1_in_both_generations() -> None:
    spec = spec_of(configs.LLAMA_3_1_8B)
    rope = spec.layers[0].rope
    assert rope is not None
    assert rope.scaling == RopeScaling("llama3", 8.0, 8192, low_freq_factor=1, high_freq_factor=4)
    assert spec == spec_of(configs.LLAMA_3_1_8B_V5)


def test_smollm2() -> None:
    spec = spec_of(configs.SMOLLM2_135M)
    assert spec.tied_head and spec.layers[0].n_kv_heads == 3


def test_mistral() -> None:
    assert {layer.window for layer in spec_of(configs.MISTRAL_7B_V01).layers} == {4096}
    nemo = spec_of(configs.MISTRAL_NEMO).layers[0]
    assert (nemo.window, nemo.head_dim) == (None, 128)
    unsaid = {k: v for k, v in configs.MISTRAL_7B_V01.items() if k != "sliding_window"}
    assert spec_of(unsaid).layers[0].window == 4096


def test_mixtral() -> None:
    layer = spec_of(configs.MIXTRAL_8X7B).layers[0]
    assert (layer.n_experts, layer.n_experts_used) == (8, 2)
    assert layer.normalize_expert_weights and layer.ffn_dim == 14336


def test_qwen2_5() -> None:
    spec = spec_of(configs.QWEN2_5_7B)
    assert spec.extra["qkv_bias"] is True and spec.extra["output_bias"] is False
    assert {layer.window for layer in spec.layers} == {None}  # use_sliding_window is false
    slides = spec_of({**configs.QWEN2_5_7B, "use_sliding_window": True, "max_window_layers": 20})
    assert [layer.window for layer in slides.layers] == [None] * 20 + [131072] * 8
    rope = spec_of(configs.QWEN2_5_7B_YARN).layers[0].rope
    assert rope is not None and rope.scaling == RopeScaling("yarn", 4.0, 32768)


def test_qwen3() -> None:
    spec = spec_of(configs.QWEN3_0_6B)
    assert spec.layers[0].head_dim == 128 and spec.extra["qkv_bias"] is False
    moe = spec_of(configs.QWEN3_30B_A3B).layers
    assert {(layer.n_experts, layer.n_experts_used, layer.ffn_dim) for layer in moe} == {
        (128, 8, 768)
    }
    sparse = spec_of({**configs.QWEN3_30B_A3B, "decoder_sparse_step": 2, "mlp_only_layers": [1]})
    assert [layer.n_experts for layer in sparse.layers[:5]] == [0, 0, 0, 128, 0]


def test_phi_3() -> None:
    assert spec_of(configs.PHI_3_MINI_4K).layers[0].window == 2047
    for context, first in ((4096, 1.01), (4097, 2.0), (None, 2.0)):
        rope = spec_of(configs.PHI_3_5_MINI, context).layers[0].rope
        assert rope is not None and rope.scaling is not None
        assert rope.scaling.factors[1] == first
        assert (rope.scaling.factor, rope.scaling.original_context) == (32.0, 4096)
    small = spec_of(configs.PHI_4_MINI).layers[0]
    assert small.rope is not None and (small.head_dim, small.rope.dims) == (128, 96)


ALL = {
    name: config
    for name, config in vars(configs).items()
    if isinstance(config, dict) and "architectures" in config
}


@pytest.mark.parametrize("name", list(ALL))
def test_no_published_key_is_dropped_unseen(name: str) -> None:
    """One key more, and the model is refused by that key's name."""
    spec_of(ALL[name])
    for key, value in {
        "attention_multiplier": 0.5,
        "residual_multiplier": 0.2,
        "embedding_multiplier": 12.0,
        "logits_scaling": 8.0,
        "attn_logit_softcapping": 50.0,
        "num_nextn_predict_layers": 1,
        "no_such_key": {"deep": 1},
    }.items():
        with pytest.raises(UnsupportedError, match=f"somewhere.*{key}"):
            spec_of({**ALL[name], key: value})
        spec_of({**ALL[name], key: None})  # null says nothing


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "relu"),
        ("quantization_config", {"quant_method": "bitsandbytes", "bits": 4}),
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("pruned_heads", {"0": [1]}),
        ("rope_interleaved", True),
        ("rope_scaling", {"rope_type": "ntk-by-parts", "factor": 2.0}),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0, "alpha": 1000}),
    ],
)
def test_values_that_change_the_computation_are_refused(name: str, key: str, value: Any) -> None:
    config = {**ALL[name], key: value}
    if key == "rope_scaling":
        config.pop("rope_parameters", None)
        key = str((value.get("alpha") and "alpha") or value["rope_type"])
    with pytest.raises(UnsupportedError, match=key):
        spec_of(config)


@pytest.mark.parametrize(
    ("config", "changes", "named"),
    [
        (configs.LLAMA_2_7B, {"sliding_window": 512}, "sliding_window"),
        (configs.LLAMA_2_7B, {"layer_types": ["full_attention"]}, "layer_types"),
        (configs.MISTRAL_7B_V01, {"layer_types": ["sliding_attention"]}, "layer_types"),
        (configs.MISTRAL_7B_V01, {"attention_bias": True}, "attention_bias"),
        (configs.QWEN2_5_7B, {"layer_types": ["linear_attention"] * 28}, "layer_types"),
        (configs.QWEN2_5_7B, {"layer_types": ["sliding_attention"] * 28}, "layer_types"),
        (configs.QWEN2_5_7B, {"use_mrope": True}, "use_mrope"),
        (
            configs.QWEN3_30B_A3B,
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 24},
            "max_window_layers",
        ),
        (configs.QWEN3_30B_A3B, {"num_local_experts": 4}, "num_experts and num_local_experts"),
        (configs.QWEN3_30B_A3B, {"num_experts_per_tok": 129}, "num_experts_per_tok"),
        (configs.QWEN3_30B_A3B, {"mlp_only_layers": "all"}, "mlp_only_layers"),
        (configs.PHI_4_MINI, {"lm_head_bias": True}, "lm_head_bias"),
        (configs.PHI_4_MINI, {"full_attn_mod": 2}, "full_attn_mod"),
        (configs.PHI_4_MINI, {"partial_rotary_factor": 0.7}, "rotary|short_factor|long_factor"),
        (configs.LLAMA_2_7B, {"num_hidden_layers": 1 << 30}, "num_hidden_layers"),
        (configs.LLAMA_2_7B, {"num_hidden_layers": 10**500}, "num_hidden_layers"),
        (configs.LLAMA_2_7B, {"num_hidden_layers": True}, "num_hidden_layers"),
        (configs.LLAMA_2_7B, {"hidden_size": "wide"}, "hidden_size"),
        (configs.LLAMA_2_7B, {"hidden_size": 8}, "head_dim"),
        (configs.LLAMA_2_7B, {"num_key_value_heads": 5}, "attention heads"),
        (configs.LLAMA_2_7B, {"head_dim": 7}, "rotary dimensions"),
        (configs.LLAMA_2_7B, {"rms_norm_eps": 0}, "rms_norm_eps"),
        (configs.LLAMA_2_7B, {"rms_norm_eps": 10**500}, "rms_norm_eps"),
        (configs.LLAMA_2_7B, {"vocab_size": None}, "vocab_size"),
        (configs.LLAMA_2_7B, {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ],
)
def test_bad_values_are_named(config: dict[str, Any], changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named) as caught:
        spec_of({**config, **changes})
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "architectures"),
        ({"architectures": []}, "architectures"),
        ({"architectures": 5}, "architectures"),
        ({"architectures": [None]}, "architectures"),
        ({"architectures": ["MambaForCausalLM"]}, "'MambaForCausalLM' is not implemented.*Llama"),
    ],
)
def test_an_unknown_architecture_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        spec_of(values)


def test_every_architecture_has_one_family() -> None:
    for kind in ("GGUF_ARCHITECTURES", "HF_ARCHITECTURES"):
        names = [name for family in FAMILIES for name in getattr(family, kind)]
        assert len(names) == len(set(names))


LLAMA_GGUF: dict[str, Any] = {
    "general.architecture": "llama",
    "general.type": "model",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 8,
    "llama.vocab_size": 300,
    "tokenizer.ggml.model": "gpt2",
}


def gguf_spec(**changes: Any) -> ModelSpec:
    values = {**LLAMA_GGUF, **{f"llama.{key}": value for key, value in changes.items()}}
    return read_spec(checkpoint(values, "gguf"))[1]


def test_gguf_llama() -> None:
    spec = gguf_spec()
    layer = spec.layers[0]
    assert (spec.family, spec.vocab_size, spec.tied_head) == ("llama", 300, True)
    assert layer.rope is not None and layer.rope.style == "interleaved"
    assert (layer.n_heads, layer.n_kv_heads, layer.head_dim) == (8, 2, 8)


def test_gguf_mixtral_is_llama_with_experts() -> None:
    spec = gguf_spec(expert_count=4, expert_used_count=2)
    assert spec.family == "mixtral" and spec.layers[0].n_experts == 4
    assert gguf_spec(expert_count=0, expert_used_count=0) == gguf_spec()


def test_gguf_qwen2_has_its_biases_whatever_the_file_lacks() -> None:
    values = {key.replace("llama", "qwen2"): value for key, value in LLAMA_GGUF.items()}
    spec = read_spec(checkpoint({**values, "general.architecture": "qwen2"}, "gguf"))[1]
    assert spec.extra == {"qkv_bias": True, "output_bias": False, "mlp_bias": False}
    assert spec.layers[0].rope is not None and spec.layers[0].rope.style == "half"


def test_gguf_window_is_honoured() -> None:
    assert gguf_spec(**{"attention.sliding_window": 5}).layers[1].window == 5
    assert gguf_spec(**{"attention.sliding_window": 0}).layers[1].window is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"attention.causal": False}, "attention.causal"),
        ({"attention.value_length": 16}, "attention.value_length"),
        ({"attention.sliding_window_pattern": 4}, "sliding_window_pattern"),
        ({"attention.scale": 0.5}, "attention.scale"),
        ({"residual_scale": 0.5}, "residual_scale"),
        ({"logit_scale": 0.5}, "logit_scale"),
        ({"expert_used_count": 2}, "expert_used_count"),
        ({"expert_count": 4}, "expert_used_count"),
        ({"expert_count": 4, "expert_used_count": 5}, "expert_used_count"),
        ({"expert_count": 2**31 - 1, "expert_used_count": 1}, "expert_count"),
        ({"block_count": 2**31 - 1}, "block_count"),
        ({"block_count": 0}, "block_count"),
        ({"attention.head_count": 0}, "attention.head_count"),
        ({"attention.head_count": np.array([8, 8], np.int32)}, "attention.head_count"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon"),
        ({"rope.dimension_count": 10}, "rotary dimensions"),
        ({"rope.dimension_sections": np.array([2, 2, 0, 0])}, "rope.dimension_sections"),
        ({"tensor_data_layout": "mine"}, "tensor_data_layout"),
    ],
)
def test_gguf_values_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        gguf_spec(**changes)


def test_gguf_that_is_no_model_is_refused() -> None:
    for kind in ("adapter", "mmproj"):
        with pytest.raises(UnsupportedError, match=f"general.type = '{kind}'"):
            read_spec(checkpoint({**LLAMA_GGUF, "general.type": kind}, "gguf"))
    with pytest.raises(UnsupportedError, match="'mamba' is not implemented"):
        read_spec(checkpoint({"general.architecture": "mamba"}, "gguf"))
    with pytest.raises(FormatError, match=r"general\.architecture"):
        read_spec(checkpoint({}, "gguf"))


def test_a_spec_is_plain_data() -> None:
    spec = spec_of(configs.PHI_4_MINI)
    assert dataclasses.asdict(spec)["layers"][0]["rope"]["dims"] == 96
