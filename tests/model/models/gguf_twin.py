"""GGUF files of the same weights as a transformers folder, by the converters' rules.

Tensor names come from the gguf package's own table and keys from its writer's methods, so that a
name we have wrong shows. What a family's converter does to tensors (reordered rows, fused or
stacked parts) is written out in the family's `Recipe`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Float32 = NDArray[np.float32]
State = dict[str, Float32]


def unchanged(state: State, config: Any) -> State:
    return state


@dataclass(frozen=True)
class Recipe:
    """How a family becomes GGUF.

    `keys(writer, config)` adds the architecture's keys. `convert(state, config)` turns Hugging
    Face tensors into those that the file gets, still under Hugging Face's names where the table
    of the gguf package knows them; other names are written as they are (rope_freqs.weight).
    """

    architecture: str
    keys: Callable[[gguf.GGUFWriter, Any], None]
    convert: Callable[[State, Any], State] = unchanged


def write_gguf(recipe: Recipe, config: Any, safetensors: Path, path: Path) -> None:
    """Write `path` from the weights in `safetensors`, all F32."""
    writer = gguf.GGUFWriter(path, recipe.architecture)
    recipe.keys(writer, config)
    _add_tokenizer(writer, config.vocab_size)
    n_layers = config.num_hidden_layers
    names = gguf.get_tensor_name_map(_architecture(recipe.architecture), n_layers)
    for name, array in sorted(recipe.convert(load_file(safetensors), config).items()):
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(known or name, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _architecture(name: str) -> gguf.MODEL_ARCH:
    return next(arch for arch, known in gguf.MODEL_ARCH_NAMES.items() if known == name)


def _add_tokenizer(writer: gguf.GGUFWriter, size: int) -> None:
    """The least that other programs ask for: byte-level BPE without merges."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    # Single printable characters stand for themselves in the byte-level alphabet.
    writer.add_token_list([chr(0x21 + i) if i < 94 else f"[{i}]" for i in range(size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_token_merges(["! !"])
    writer.add_eos_token_id(0)


def common_keys(writer: gguf.GGUFWriter, config: Any) -> None:
    """What nearly every decoder's converter writes, from whichever names the config has."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None) is not None:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)


def interleaved(rows: Float32, n_heads: int) -> Float32:
    """Rows of Q or K reordered within each head, so that features that turn together, once half
    a head apart, are neighbours."""
    return rows.reshape(n_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def stacked(parts: Iterable[Float32]) -> Float32:
    """Experts' matrices as one tensor, (experts, out, in)."""
    return np.stack(list(parts))
