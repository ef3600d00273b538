"""A tiny Llama in a folder, as Hugging Face writes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pellucid.text import train_bpe


def tiny_llama(folder: Path) -> Path:
    """One layer, a vocabulary learnt from a few words, random weights."""
    learnt = train_bpe(["low lower lowest new newer newest wide wider widest " * 9], 300)
    d, ffn, vocab = 64, 96, 304
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": d,
        "intermediate_size": ffn,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "vocab_size": vocab,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (vocab, d),
        "model.norm.weight": (d,),
        f"{layer}input_layernorm.weight": (d,),
        f"{layer}post_attention_layernorm.weight": (d,),
        f"{layer}self_attn.q_proj.weight": (d, d),
        f"{layer}self_attn.k_proj.weight": (d // 2, d),
        f"{layer}self_attn.v_proj.weight": (d // 2, d),
        f"{layer}self_attn.o_proj.weight": (d, d),
        f"{layer}mlp.gate_proj.weight": (ffn, d),
        f"{layer}mlp.up_proj.weight": (ffn, d),
        f"{layer}mlp.down_proj.weight": (d, ffn),
    }
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal(shape) * 0.1 + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(learnt.to_json())
    return folder
