"""GPT-2 against transformers, from both kinds of names and from GGUF."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pellucid.core.errors import BadInput
from pellucid.formats import open_checkpoint
from pellucid.models.registry import load_model, read_spec
from pellucid.ops.reference import ReferenceOps

from .gguf_twin import Recipe, State
from .runner import (
    Built,
    Case,
    FamilySuite,
    changed,
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
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def convert(state: State, config: Any) -> State:
    stored_as_in_out = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return {
        name: array.T if name.endswith(stored_as_in_out) else array for name, array in state.items()
    }


GGUF = Recipe("gpt2", keys, convert)

FAULTS = {
    "zero logits": zero_logits,
    "a dropped bias": dropped("blk.1.attn_output.bias"),
    "a dropped norm's bias": dropped("blk.0.ffn_norm.bias"),
    "positions off by one": changed("position_embd.weight", lambda w: np.roll(w, 1, 0)),
    "no final norm": without_norm("output_norm.weight"),
    "the other GELU": other_gelu,
    "another epsilon": wrong_spec(norm_eps=1e-3),
    "attention unscaled": wrong_layer(layer_with(attention_scale=1.0), 1),
}

BASE = {
    "vocab_size": 96,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 40,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


class TestGPT2(FamilySuite):
    CASES: ClassVar[dict[str, Case]] = {
        "plain": Case("GPT2Config", BASE, FAULTS, GGUF),
        "untied, narrow": Case(
            "GPT2Config", {**BASE, "tie_word_embeddings": False, "n_inner": 20}, {}, GGUF
        ),
        "scaled by layer": Case(
            "GPT2Config",
            {**BASE, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
            {"one scale for all": wrong_layer(layer_with(attention_scale=12**-0.5))},
            not_in_gguf="attention_scale",
        ),
        "unscaled": Case(
            "GPT2Config",
            {**BASE, "scale_attn_weights": False},
            weights=0.7,
            not_in_gguf="attention_scale",
        ),
        **{
            name: Case(
                "GPT2Config",
                {**BASE, "activation_function": name},
                lengths=(9,),
                not_in_gguf="exact_gelu" if name in ("gelu", "gelu_python") else "",
            )
            for name in ("gelu", "gelu_python", "gelu_fast", "gelu_pytorch_tanh")
        },
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(TestGPT2.CASES["plain"], tmp_path_factory.mktemp("gpt2"))


def test_openais_own_names_and_buffers_load(plain: Built, tmp_path: Path) -> None:
    """The first published files leave `transformer.` off and keep each layer's causal mask."""
    assert plain.model
    state = load_file(plain.folder / "model.safetensors")
    state = {name.removeprefix("transformer."): array for name, array in state.items()}
    for i in range(BASE["n_layer"]):
        state[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 40, 40), np.float32))
        state[f"h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    save_file(state, tmp_path / "model.safetensors")
    shutil.copy(plain.folder / "config.json", tmp_path)
    model = load_model(open_checkpoint(tmp_path), ReferenceOps())
    tokens = plain.tokens(9)
    np.testing.assert_array_equal(run(model, tokens), run(plain.model, tokens))


def test_positions_end_where_the_learnt_ones_do(plain: Built) -> None:
    assert plain.model
    checkpoint = open_checkpoint(plain.folder)
    assert read_spec(checkpoint, context=40)[1].context_length == 40
    with pytest.raises(BadInput, match="41 positions were asked for and the model has learnt 40"):
        read_spec(checkpoint, context=41)
