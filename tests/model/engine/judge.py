"""Transformers' Llama with the weights of a GGUF file, dequantised by the `gguf` package.

Transformers can read GGUF files by itself, but asks for one more package to do so and takes a
minute; its weights are these, bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_llama(path: Path) -> Any:
    """A float32 `LlamaForCausalLM` on the CPU."""
    import gguf
    import torch
    import transformers

    reader = gguf.GGUFReader(path)

    def value(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    heads = {"attn_q": value("attention.head_count"), "attn_k": value("attention.head_count_kv")}
    weights: dict[str, NDArray[np.float32]] = {}
    for tensor in reader.tensors:
        array = gguf.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part in heads:
            array = _halves_from_pairs(array, heads[part])
        weights[_hf_name(tensor.name)] = np.array(array, np.float32)
    config = transformers.LlamaConfig(
        vocab_size=len(weights["model.embed_tokens.weight"]),
        hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"),
        num_hidden_layers=value("block_count"),
        num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"],
        max_position_embeddings=value("context_length"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        rope_theta=value("rope.freq_base"),
        tie_word_embeddings="lm_head.weight" not in weights,
        attn_implementation="eager",
    )
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return model


def _hf_name(name: str) -> str:
    ends = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in ends:
        return ends[name]
    _, index, part, kind = name.split(".")
    return f"model.layers.{index}.{_NAMES[part]}.{kind}"


def _halves_from_pairs(array: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Rows of a head in transformers' order: it turns feature i with i + half, GGUF with i + 1."""
    rows, columns = array.shape
    pairs = array.reshape(n_heads, rows // n_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
