"""A tiny random model of every family, without a checkpoint: each family names its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pellucid.formats import Checkpoint, Metadata
from pellucid.models.registry import Family, Model, read_spec
from pellucid.models.weights import Weights
from pellucid.ops.vocabulary import HostTensor, Ops
from pellucid.quant.types import TensorType
from tests.native.cases import tensor

_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 512,
}
_GEMMA = {**_SIZES, "head_dim": 32, "hidden_activation": "gelu_pytorch_tanh"}
_EXPERTS = {"num_experts_per_tok": 2, "norm_topk_prob": True}

# The keys that differ from a family's own defaults.
CONFIGS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {
        "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 512, "vocab_size": 97,
    },
    "LlamaForCausalLM": {**_SIZES, "tie_word_embeddings": True},
    "MistralForCausalLM": {**_SIZES, "sliding_window": 40, "head_dim": 32},
    "MixtralForCausalLM": {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen2ForCausalLM": {**_SIZES, "tie_word_embeddings": True},
    "Qwen3ForCausalLM": {**_SIZES, "head_dim": 32},
    "Qwen3MoeForCausalLM": {
        **_SIZES, **_EXPERTS, "head_dim": 32, "num_experts": 4, "moe_intermediate_size": 32,
        "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": {
        **_GEMMA, "query_pre_attn_scalar": 32, "sliding_window": 40, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "Gemma3ForCausalLM": {
        **_GEMMA, "query_pre_attn_scalar": 32, "sliding_window": 40, "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "Phi3ForCausalLM": {**_SIZES, "pad_token_id": 0},
    "BloomForCausalLM": {"hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 97},
    "MPTForCausalLM": {
        "d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 97, "max_seq_len": 512,
        "expansion_ratio": 2, "attn_config": {"alibi": True}, "no_bias": True,
    },
}  # fmt: skip


def host_tensors(architecture: str, type: TensorType) -> tuple[Family, Any, list[HostTensor]]:
    """Family, specification and random tensors; matrices are stored as `type` where it fits."""
    values = {"architectures": [architecture], **CONFIGS[architecture]}
    path = Path("tiny")
    family, spec = read_spec(Checkpoint(path, "safetensors", Metadata(path, values), {}, []), 512)
    rng = np.random.default_rng(7)
    hosts = []
    for declared in family.tensors(spec):
        shape = declared.shape
        noise = rng.standard_normal(shape)
        if len(shape) == 1:
            centre = 1.0 if "norm.weight" in declared.name else 0.0
            hosts.append(tensor(declared.name, centre + 0.3 * noise))
        else:
            width = 1.0 if "embd" in declared.name else 1.4 * shape[-1] ** -0.5
            fits = type is TensorType.F32 or shape[-1] % 32 == 0
            hosts.append(tensor(declared.name, width * noise, type if fits else TensorType.F32))
    return family, spec, hosts


def tiny_model(architecture: str, ops: Ops, type: TensorType = TensorType.F32) -> Model:
    """The same weights for every backend."""
    family, spec, hosts = host_tensors(architecture, type)
    return Model(spec, ops, Weights({host.name: ops.load(host) for host in hosts}), family)
