"""What published configurations become, and what is refused by name: GPT-2, BLOOM, MPT, Gemma."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.core.spec import ModelSpec, RopeScaling, RopeSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.formats.metadata import Metadata
from pellucid.formats.tensors import TensorInfo
from pellucid.models.registry import read_spec
from pellucid.quant.types import TensorType

GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "n_special": 0,
    "predict_special_tokens": True,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
BLOOM_560M = {
    "apply_residual_connection_post_layernorm": False,
    "attention_dropout": 0.0,
    "attention_softmax_in_fp32": True,
    "architectures": ["BloomForCausalLM"],
    "bias_dropout_fusion": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "masked_softmax_fusion": True,
    "model_type": "bloom",
    "n_embed": 1024,
    "n_inner": None,
    "n_layer": 24,
    "num_attention_heads": 16,
    "offset_alibi": 100,
    "pad_token_id": 3,
    "pretraining_tp": 1,
    "skip_bias_add": True,
    "skip_bias_add_qkv": False,
    "unk_token_id": 0,
    "use_cache": True,
    "vocab_size": 250880,
}
MPT_STORYWRITER = {
    "architectures": ["MPTForCausalLM"],
    "attn_config": {
        "alibi": True,
        "alibi_bias_max": 16,
        "attn_impl": "torch",
        "attn_pdrop": 0,
        "attn_type": "multihead_attention",
        "attn_uses_sequence_id": False,
        "clip_qkv": 6,
        "prefix_lm": False,
        "qk_ln": False,
        "softmax_scale": None,
    },
    "auto_map": {"AutoConfig": "configuration_mpt.MPTConfig"},
    "d_model": 4096,
    "emb_pdrop": 0,
    "embedding_fraction": 1.0,
    "expansion_ratio": 4,
    "init_config": {"name": "kaiming_normal_", "verbose": 0},
    "init_device": "cpu",
    "learned_pos_emb": True,
    "logit_scale": None,
    "max_seq_len": 65536,
    "model_type": "mpt",
    "n_heads": 32,
    "n_layers": 32,
    "no_bias": True,
    "norm_type": "low_precision_layernorm",
    "resid_pdrop": 0,
    "tokenizer_name": "EleutherAI/gpt-neox-20b",
    "torch_dtype": "bfloat16",
    "use_cache": False,
    "verbose": 0,
    "vocab_size": 50432,
}
GEMMA_2B = {
    "architectures": ["GemmaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "head_dim": 256,
    "hidden_act": "gelu",
    "hidden_activation": None,
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 16384,
    "max_position_embeddings": 8192,
    "model_type": "gemma",
    "num_attention_heads": 8,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "use_cache": True,
    "vocab_size": 256000,
}
GEMMA2_27B = {
    "architectures": ["Gemma2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": 1,
    "final_logit_softcapping": 30.0,
    "head_dim": 128,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 4608,
    "initializer_range": 0.02,
    "intermediate_size": 36864,
    "max_position_embeddings": 8192,
    "model_type": "gemma2",
    "num_attention_heads": 32,
    "num_hidden_layers": 46,
    "num_key_value_heads": 16,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 144,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "sliding_window_size": 4096,
    "use_cache": True,
    "vocab_size": 256000,
}
GEMMA3_1B = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "initializer_range": 0.02,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "use_cache": True,
    "vocab_size": 262144,
}
GEMMA3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999,
    "eoi_token_index": 256000,
    "eos_token_id": [1, 106],
    "image_token_index": 262144,
    "initializer_range": 0.02,
    "mm_tokens_per_image": 256,
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152, "vision_use_head": False},
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "GPT-2": GPT2,
    "BLOOM": BLOOM_560M,
    "MPT": MPT_STORYWRITER,
    "Gemma": GEMMA_2B,
    "Gemma 2": GEMMA2_27B,
    "Gemma 3": GEMMA3_1B,
    "Gemma 3 with eyes": GEMMA3_4B,
}


def spec_of(config: dict[str, Any]) -> ModelSpec:
    path = Path("model/config.json")
    return read_spec(Checkpoint(path, "safetensors", Metadata(path, config), {}, []))[1]


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """`config` with the value at "attn_config.alibi" or the like replaced."""
    first, _, rest = path.partition(".")
    inner = changed(config.get(first) or {}, rest, value) if rest else value
    return {**config, first: inner}


def test_gpt2() -> None:
    spec = spec_of(GPT2)
    layer = spec.layers[0]
    assert (spec.n_layers, layer.n_heads, layer.head_dim, layer.ffn_dim) == (12, 12, 64, 3072)
    assert (spec.context_length, spec.tied_head, layer.attention_scale) == (1024, True, 0.125)


def test_bloom_under_its_older_names() -> None:
    spec = spec_of(BLOOM_560M)
    layer = spec.layers[0]
    assert (spec.d_model, spec.n_layers, layer.n_heads, layer.ffn_dim) == (1024, 24, 16, 4096)
    assert layer.alibi_slopes[::15] == (2.0**-0.5, 2.0**-8)


def test_mpt() -> None:
    spec = spec_of(MPT_STORYWRITER)
    assert spec.extra == {"clip_qkv": 6.0, "biased": False}
    assert spec.layers[0].alibi_slopes[::31] == (2.0**-0.5, 2.0**-16)


def test_gemma() -> None:
    spec = spec_of(GEMMA_2B)
    assert spec.embedding_scale == math.sqrt(2048)
    assert spec.layers[0].rope == RopeSpec(10000.0, 256)
    assert spec.tied_head


def test_gemma2_27b_divides_queries_by_its_own_scalar() -> None:
    spec = spec_of(GEMMA2_27B)
    assert {layer.attention_scale for layer in spec.layers} == {1 / 12}
    assert [layer.window for layer in spec.layers] == [4096, None] * 23
    assert (spec.layers[0].attention_softcap, spec.logit_softcap) == (50.0, 30.0)


def test_gemma2_tells_null_from_no_word() -> None:
    keys = ("attn_logit_softcapping", "final_logit_softcapping", "sliding_window")
    rest = {k: v for k, v in GEMMA2_27B.items() if k not in (*keys, "sliding_window_size")}
    assert spec_of(rest) == spec_of(GEMMA2_27B)
    spec = spec_of({**rest, **dict.fromkeys(keys)})
    assert (spec.logit_softcap, spec.layers[0].attention_softcap) == (None, None)
    assert {layer.window for layer in spec.layers} == {None}


def test_gemma3_tells_null_from_no_word() -> None:
    assert (
        spec_of({**GEMMA3_1B, "head_dim": None, "num_attention_heads": None}).layers[0].n_heads == 8
    )
    assert {layer.window for layer in spec_of({**GEMMA3_1B, "sliding_window": None}).layers} == {
        None
    }
    unsaid = {key: value for key, value in GEMMA3_1B.items() if key != "sliding_window"}
    assert spec_of(unsaid).layers[0].window == 4096


def test_gemma3_has_five_near_layers_to_a_far_one() -> None:
    spec = spec_of(GEMMA3_1B)
    far = [i for i, layer in enumerate(spec.layers) if layer.window is None]
    assert far == [5, 11, 17, 23]
    assert spec.layers[5].rope == RopeSpec(1e6, 256)
    assert (spec.layers[0].window, spec.layers[0].rope) == (512, RopeSpec(1e4, 256))


def test_gemma3_with_eyes_takes_defaults_that_its_text_config_leaves_out() -> None:
    spec = spec_of(GEMMA3_4B)
    near, far = spec.layers[0], spec.layers[5]
    assert (near.n_heads, near.n_kv_heads, near.head_dim) == (8, 4, 256)
    assert (spec.vocab_size, spec.context_length) == (262208, 131072)
    assert far.rope == RopeSpec(1e6, 256, scaling=RopeScaling("linear", 8.0))
    assert near.rope == RopeSpec(1e4, 256)


@pytest.mark.parametrize(
    ("model", "path", "value"),
    [
        ("GPT-2", "activation_function", "relu"),
        ("GPT-2", "add_cross_attention", True),
        ("GPT-2", "n_ctx", 512),
        ("GPT-2", "n_special", 3),
        ("BLOOM", "apply_residual_connection_post_layernorm", True),
        ("BLOOM", "n_inner", 100),
        ("MPT", "attn_config.alibi", False),
        ("MPT", "attn_config.attn_type", "multiquery_attention"),
        ("MPT", "attn_config.attn_uses_sequence_id", True),
        ("MPT", "attn_config.kv_n_heads", 8),
        ("MPT", "attn_config.prefix_lm", True),
        ("MPT", "attn_config.qk_gn", True),
        ("MPT", "attn_config.qk_ln", True),
        ("MPT", "attn_config.rope", True),
        ("MPT", "attn_config.sliding_window_size", 512),
        ("MPT", "ffn_config", {"ffn_type": "mptglu"}),
        ("MPT", "norm_type", "rmsnorm"),
        ("Gemma", "hidden_act", "silu"),
        ("Gemma", "use_bidirectional_attention", True),
        ("Gemma", "final_logit_softcapping", 30.0),
        ("Gemma 2", "hidden_activation", "gelu"),
        ("Gemma 2", "layer_types", ["chunked_attention"] * 46),
        ("Gemma 2", "sliding_window_size", 512),
        ("Gemma 3", "attn_logit_softcapping", 50.0),
        ("Gemma 3", "rope_parameters.chunked_attention", {"rope_theta": 1e4}),
        ("Gemma 3", "rope_parameters.full_attention.rope_type", "spiral"),
        ("Gemma 3", "use_bidirectional_attention", True),
        ("Gemma 3 with eyes", "text_config.attn_logit_softcapping", 50.0),
        ("Gemma 3 with eyes", "tie_word_embeddings", False),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(model: str, path: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=path.rpartition(".")[2]):
        spec_of(changed(PUBLISHED[model], path, value))


@pytest.mark.parametrize("path", ["twist", "attn_config.twist", "text_config.twist"])
def test_an_unknown_key_is_refused_by_name(path: str) -> None:
    model = {"attn_config": "MPT", "text_config": "Gemma 3 with eyes"}.get(path[:11], "GPT-2")
    with pytest.raises(UnsupportedError, match="twist"):
        spec_of(changed(PUBLISHED[model], path, 1))


def test_two_names_for_one_value_may_not_disagree() -> None:
    assert spec_of({**BLOOM_560M, "hidden_size": 1024}).d_model == 1024
    with pytest.raises(FormatError, match="hidden_size and n_embed"):
        spec_of({**BLOOM_560M, "hidden_size": 2048})


def gguf_spec(architecture: str, keys: dict[str, Any], tensors: tuple[str, ...] = ()) -> ModelSpec:
    """The spec of a GGUF file with these keys, a vocabulary of 96 and width 64."""
    metadata = {f"{architecture}.{key}": value for key, value in {**GEOMETRY, **keys}.items()}
    metadata["general.architecture"] = architecture
    infos = {name: TensorInfo(name, (64,), TensorType.F32, 0, 256) for name in tensors}
    infos["token_embd.weight"] = TensorInfo("", (96, 64), TensorType.F32, 0, 96 * 256)
    path = Path("model.gguf")
    return read_spec(Checkpoint(path, "gguf", Metadata(path, metadata), infos, []))[1]


GEOMETRY = {
    "context_length": 128,
    "embedding_length": 64,
    "block_count": 7,
    "feed_forward_length": 100,
    "attention.head_count": 4,
}
RMS = {"attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": 32}
NORM = {"attention.layer_norm_epsilon": 1e-5}


def test_gguf_of_gemma2_takes_what_its_first_files_left_out() -> None:
    spec = gguf_spec("gemma2", {**RMS, "final_logit_softcapping": 20.0})
    assert [layer.window for layer in spec.layers] == [4096, None] * 3 + [4096]
    assert spec.layers[0].attention_scale == 32**-0.5
    assert (spec.logit_softcap, spec.layers[0].attention_softcap) == (20.0, 50.0)


@pytest.mark.parametrize(("architecture", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_gguf_of_a_27b_is_known_by_its_depth(architecture: str, layers: int) -> None:
    spec = gguf_spec(architecture, {**RMS, "block_count": layers})
    assert spec.layers[0].attention_scale == 16**-0.5  # 64 wide, 4 heads, of 32 each


def test_gguf_of_gemma3_may_flag_each_layer_or_count() -> None:
    near = {**RMS, "attention.sliding_window": 8, "rope.freq_base": 1e6}
    key = "attention.sliding_window_pattern"
    by_default = gguf_spec("gemma3", near)
    assert [i for i, layer in enumerate(by_default.layers) if layer.window is None] == [5]
    assert by_default.layers[0].rope == RopeSpec(1e4, 32)
    by_number = gguf_spec("gemma3", {**near, key: 3})
    assert [i for i, layer in enumerate(by_number.layers) if layer.window is None] == [2, 5]
    flags = np.array([True, False, True, False, False, True, True])
    by_flag = gguf_spec("gemma3", {**near, key: flags, "rope.freq_base_swa": 5e4})
    assert [layer.window is not None for layer in by_flag.layers] == flags.tolist()
    assert by_flag.layers[0].rope == RopeSpec(5e4, 32)
    with pytest.raises(FormatError, match=key):
        gguf_spec("gemma3", {**near, key: flags[:5]})


def test_gguf_of_gemma3_without_a_window_sees_everything() -> None:
    spec = gguf_spec("gemma3", {**RMS, "rope.freq_base": 1e6})
    assert {(layer.window, layer.rope) for layer in spec.layers} == {(None, RopeSpec(1e6, 32))}


def test_gguf_of_mpt() -> None:
    keys = {**NORM, "attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 0.0}
    assert gguf_spec("mpt", keys).extra == {"biased": False}
    assert gguf_spec("mpt", keys, ("output_norm.bias",)).extra == {"biased": True}
    with pytest.raises(UnsupportedError, match="without ALiBi"):
        gguf_spec("mpt", {**keys, "attention.max_alibi_bias": 0.0})


@pytest.mark.parametrize(
    ("architecture", "changes", "named"),
    [
        ("gpt2", {"attention.head_count_kv": 2}, "attention.head_count_kv = 2"),
        ("gpt2", {"attention.causal": False}, "attention.causal"),
        ("gpt2", {"attention.head_count": 5}, "64 does not divide into 5 heads"),
        ("bloom", {"attention.max_alibi_bias": 4.0}, "attention.max_alibi_bias"),
        ("mpt", {"attention.max_alibi_bias": float("nan")}, "attention.max_alibi_bias"),
        ("gemma2", {"attn_logit_softcapping": 0.0}, "attn_logit_softcapping"),
        ("gemma2", {"attention.value_length": 16}, "attention.value_length"),
        ("gemma3", {"rope.dimension_count_swa": 16}, "rope.dimension_count_swa"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma3", {"block_count": 1 << 30}, "block_count"),
    ],
)
def test_gguf_values_are_refused_by_name(
    architecture: str, changes: dict[str, Any], named: str
) -> None:
    norm = RMS if architecture.startswith("gemma") else NORM
    with pytest.raises(BadInput, match=named):
        gguf_spec(architecture, {**norm, **changes})


PATHS = [
    (model, path)
    for model, config in PUBLISHED.items()
    for key, value in config.items()
    for path in ([f"{key}.{inner}" for inner in value] if isinstance(value, dict) else []) + [key]
]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([1 << 20, 1 << 31, 1 << 40, -(1 << 40)]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(0, 2) | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(0, 2), max_size=2),
)


@given(st.lists(st.tuples(st.sampled_from(PATHS), JUNK), min_size=1, max_size=3))
def test_a_broken_configuration_gives_one_clear_error(
    changes: list[tuple[tuple[str, str], Any]],
) -> None:
    for model, config in PUBLISHED.items():
        broken = config
        for (its, path), value in changes:
            if its == model and isinstance(broken.get(path.partition(".")[0]), dict) == (
                "." in path
            ):
                broken = changed(broken, path, value)
        try:
            spec_of(broken)
        except BadInput as error:
            assert str(error).startswith("model/config.json")
            assert "\n" not in str(error)
