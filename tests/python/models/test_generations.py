"""GGUF files of other generations: Q, K and V in one tensor, experts one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid.core.errors import FormatError
from pellucid.formats import open_checkpoint
from pellucid.models.registry import Model, load_model
from pellucid.ops.reference import ReferenceOps

D, HEADS, KV_HEADS, FFN, LAYERS, EXPERTS, VOCABULARY = 64, 4, 2, 96, 2, 3, 40
Q_DIM, KV_DIM = D, D * KV_HEADS // HEADS
Stored = dict[str, NDArray[np.float32]]


def weights(experts: int, bias: bool) -> Stored:
    """Random weights under the names of today."""
    rng = np.random.default_rng(experts)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCABULARY, D),
        "output_norm.weight": (D,),
        "output.weight": (VOCABULARY, D),
    }
    for i in range(LAYERS):
        layer = {"attn_norm": (D,), "ffn_norm": (D,), "attn_output": (D, Q_DIM)}
        layer |= {"attn_q": (Q_DIM, D), "attn_k": (KV_DIM, D), "attn_v": (KV_DIM, D)}
        ffn = {"ffn_gate": (FFN, D), "ffn_up": (FFN, D), "ffn_down": (D, FFN)}
        if experts:
            ffn = {f"{name}_exps": (experts, *shape) for name, shape in ffn.items()}
            layer["ffn_gate_inp"] = (experts, D)
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in (layer | ffn).items()}
        if bias:
            rows = {"q": Q_DIM, "k": KV_DIM, "v": KV_DIM}
            shapes |= {f"blk.{i}.attn_{part}.bias": (n,) for part, n in rows.items()}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def with_qkv_fused(stored: Stored) -> Stored:
    fused = {name: a for name, a in stored.items() if not re.search(r"attn_[qkv]\.", name)}
    for name in stored:
        if "attn_q." in name:
            parts = [stored[name.replace("attn_q.", f"attn_{part}.")] for part in "qkv"]
            fused[name.replace("attn_q.", "attn_qkv.")] = np.concatenate(parts)
    return fused


def with_experts_apart(stored: Stored) -> Stored:
    apart = {name: a for name, a in stored.items() if "_exps" not in name}
    for name in stored.keys() - apart.keys():
        apart |= {name.replace("_exps", f".{e}"): part for e, part in enumerate(stored[name])}
    return apart


def write(path: Path, stored: Mapping[str, NDArray[np.float32]], experts: int) -> Path:
    """A file of architecture llama, matrices in Q8_0."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(D)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(min(2, experts))
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, array in stored.items():
        if array.ndim > 1:
            writer.add_tensor(name, gguf.quantize(array, q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path: Path) -> Model:
    with open_checkpoint(path) as checkpoint:
        return load_model(checkpoint, ReferenceOps())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("experts", [0, 1, EXPERTS])
def test_every_generation_is_the_same_model(tmp_path: Path, experts: int, bias: bool) -> None:
    today = weights(experts, bias)
    other = with_qkv_fused(with_experts_apart(today))
    assert not today.keys() & other.keys() & {"blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"}
    expected = load(write(tmp_path / "today.gguf", today, experts))
    got = load(write(tmp_path / "other.gguf", other, experts))
    assert got.spec == expected.spec
    assert got.spec.extra["qkv_bias"] is bias
    all_weights = dict(expected.weights.items())
    assert dict(got.weights.items()).keys() == all_weights.keys()
    for name, weight in all_weights.items():
        np.testing.assert_array_equal(got.weights[name], weight, err_msg=name)


def test_what_is_amiss_is_named_as_the_file_has_it(tmp_path: Path) -> None:
    apart = with_experts_apart(weights(EXPERTS, False))
    last = apart.pop("blk.1.ffn_down.2.weight")
    with pytest.raises(FormatError, match=r"tensor blk\.1\.ffn_down\.2\.weight: is missing"):
        load(write(tmp_path / "missing.gguf", apart, EXPERTS))
    apart["blk.1.ffn_down.2.weight"] = last[:32]
    with pytest.raises(FormatError, match=r"blk\.1\.ffn_down\.2\.weight: has shape \[32, 96\]"):
        load(write(tmp_path / "shape.gguf", apart, EXPERTS))
    fused = with_qkv_fused(weights(0, False))
    fused["blk.0.attn_qkv.weight"] = fused["blk.0.attn_qkv.weight"][:-32]
    with pytest.raises(FormatError, match=r"blk\.0\.attn_qkv\.weight: has shape \[96, 64\]"):
        load(write(tmp_path / "qkv.gguf", fused, 0))
    both = weights(0, False) | with_qkv_fused(weights(0, False))
    with pytest.raises(Exception, match=r"have no place in this model: blk\.0\.attn_qkv\.weight"):
        load(write(tmp_path / "both.gguf", both, 0))
