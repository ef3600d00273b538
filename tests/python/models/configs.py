"""What the configurations of published models say, as config.json of either generation."""

from __future__ import annotations

from typing import Any

_TRAINING = {
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0",
    "use_cache": True,
}


def _config(architecture: str, kind: str, **keys: Any) -> dict[str, Any]:
    return {**_TRAINING, "architectures": [architecture], "model_type": kind, **keys}


def _sizes(d: int, ffn: int, layers: int, heads: int, kv: int, vocab: int) -> dict[str, int]:
    return {
        "hidden_size": d,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
    }


LLAMA_2_7B = _config(
    "LlamaForCausalLM",
    "llama",
    **_sizes(4096, 11008, 32, 32, 32, 32000),
    _name_or_path="meta-llama/Llama-2-7b-hf",
    max_position_embeddings=4096,
    pretraining_tp=1,
    rms_norm_eps=1e-05,
    rope_scaling=None,
    tie_word_embeddings=False,
)
LLAMA_3_1_8B = _config(
    "LlamaForCausalLM",
    "llama",
    **_sizes(4096, 14336, 32, 32, 8, 128256),
    attention_bias=False,
    max_position_embeddings=131072,
    mlp_bias=False,
    pretraining_tp=1,
    rms_norm_eps=1e-05,
    rope_theta=500000.0,
    rope_scaling={
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    tie_word_embeddings=False,
)
SMOLLM2_135M = _config(
    "LlamaForCausalLM",
    "llama",
    **_sizes(576, 1536, 30, 9, 3, 49152),
    attention_bias=False,
    is_llama_config=True,
    max_position_embeddings=8192,
    mlp_bias=False,
    pad_token_id=2,
    pretraining_tp=1,
    rms_norm_eps=1e-05,
    rope_interleaved=False,
    rope_scaling=None,
    rope_theta=100000,
    tie_word_embeddings=True,
    **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}},
)
MISTRAL_7B_V01 = _config(
    "MistralForCausalLM",
    "mistral",
    **_sizes(4096, 14336, 32, 32, 8, 32000),
    max_position_embeddings=32768,
    rms_norm_eps=1e-05,
    rope_theta=10000.0,
    sliding_window=4096,
    tie_word_embeddings=False,
)
MISTRAL_NEMO = {
    **MISTRAL_7B_V01,
    **_sizes(5120, 14336, 40, 32, 8, 131072),
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "sliding_window": None,
}
MIXTRAL_8X7B = _config(
    "MixtralForCausalLM",
    "mixtral",
    **_sizes(4096, 14336, 32, 32, 8, 32000),
    max_position_embeddings=32768,
    num_experts_per_tok=2,
    num_local_experts=8,
    output_router_logits=False,
    rms_norm_eps=1e-05,
    rope_theta=1000000.0,
    router_aux_loss_coef=0.02,
    sliding_window=None,
    tie_word_embeddings=False,
)
QWEN2_5_7B = _config(
    "Qwen2ForCausalLM",
    "qwen2",
    **_sizes(3584, 18944, 28, 28, 4, 152064),
    max_position_embeddings=131072,
    max_window_layers=28,
    rms_norm_eps=1e-06,
    rope_theta=1000000.0,
    sliding_window=131072,
    tie_word_embeddings=False,
    use_mrope=False,
    use_sliding_window=False,
)
# As its card says to do for contexts beyond 32,768.
QWEN2_5_7B_YARN = {
    **QWEN2_5_7B,
    "max_position_embeddings": 32768,
    "rope_scaling": {
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
        "type": "yarn",
    },
}
QWEN3_0_6B = _config(
    "Qwen3ForCausalLM",
    "qwen3",
    **_sizes(1024, 3072, 28, 16, 8, 151936),
    attention_bias=False,
    head_dim=128,
    max_position_embeddings=40960,
    max_window_layers=28,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000000,
    sliding_window=None,
    tie_word_embeddings=True,
    use_sliding_window=False,
)
QWEN3_30B_A3B = _config(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    **_sizes(2048, 6144, 48, 32, 4, 151936),
    attention_bias=False,
    decoder_sparse_step=1,
    head_dim=128,
    max_position_embeddings=40960,
    max_window_layers=48,
    mlp_only_layers=[],
    moe_intermediate_size=768,
    norm_topk_prob=True,
    num_experts=128,
    num_experts_per_tok=8,
    output_router_logits=False,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000000.0,
    router_aux_loss_coef=0.001,
    sliding_window=None,
    tie_word_embeddings=False,
    use_sliding_window=False,
)
_PHI = {
    "attention_bias": False,
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "original_max_position_embeddings": 4096,
    "pad_token_id": 32000,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
}
PHI_3_MINI_4K = _config(
    "Phi3ForCausalLM",
    "phi3",
    **_sizes(3072, 8192, 32, 32, 32, 32064),
    **_PHI,
    max_position_embeddings=4096,
    rope_scaling=None,
    sliding_window=2047,
    tie_word_embeddings=False,
)
PHI_3_5_MINI = {
    **PHI_3_MINI_4K,
    "max_position_embeddings": 131072,
    "sliding_window": 262144,
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0 + i / 100 for i in range(48)],
        "long_factor": [1.0 + i for i in range(48)],
    },
}
PHI_4_MINI = {
    **PHI_3_5_MINI,
    **_sizes(3072, 8192, 32, 24, 8, 200064),
    "full_attn_mod": 1,
    "interpolate_factor": 1,
    "lm_head_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 0.75,
    "tie_word_embeddings": True,
}

# The second generation keeps all of the rotary embedding in one place.
LLAMA_3_1_8B_V5 = {
    key: value
    for key, value in {
        **LLAMA_3_1_8B,
        "rope_parameters": {**LLAMA_3_1_8B["rope_scaling"], "rope_theta": 500000.0},
        "dtype": "bfloat16",
    }.items()
    if key not in ("rope_scaling", "rope_theta", "torch_dtype")
}
