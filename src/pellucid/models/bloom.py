"""BLOOM (Le Scao et al. 2022): ALiBi, a LayerNorm on the embeddings, GELU, tied head."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.alibi import slopes
from pellucid.models.fields import Fields, equal_heads, vocabulary
from pellucid.models.names import fused_block, layers
from pellucid.models.parts import attention, embed, layer_norm, mlp
from pellucid.models.weights import Tensor, Weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops

GGUF_ARCHITECTURES = ("bloom",)
HF_ARCHITECTURES = ("BloomForCausalLM",)

_HF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
_TRAINED_CONTEXT = 2048  # what ALiBi was trained at when the configuration does not say


def enter(ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array:
    """Rows [T, d] for the first layer."""
    x = embed(ops, spec, weights, step)
    return layer_norm(ops, spec, weights, "token_embd_norm", x)


def decoder_layer(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """One layer of rows x [T, d]."""
    normed = layer_norm(ops, spec, w, "attn_norm", x)
    x = x + attention(ops, spec, layer, w, normed, index, step)
    return x + mlp(ops, w, layer_norm(ops, spec, w, "ffn_norm", x), ops.gelu_tanh)


def leave(ops: Ops, spec: ModelSpec, weights: Weights, x: Array) -> Array:
    """Rows x [R, d], normed for the head."""
    return layer_norm(ops, spec, weights, "output_norm", x)


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    d_model = config.whole(config.either("hidden_size", "n_embed"))
    n_heads = config.heads(config.either("n_head", "num_attention_heads"))
    config.only("apply_residual_connection_post_layernorm", False)
    config.only("n_inner", 4 * d_model)
    # How training was laid out over machines and kernels.
    config.harmless(
        "attention_softmax_in_fp32 offset_alibi skip_bias_add skip_bias_add_qkv".split()
    )
    return ModelSpec(
        family="bloom",
        d_model=d_model,
        vocab_size=config.whole("vocab_size"),
        context_length=config.whole("seq_length", _TRAINED_CONTEXT),
        norm_eps=config.positive("layer_norm_epsilon", 1e-5),
        layers=(_layer(config, d_model, n_heads, 4 * d_model),)
        * config.layers(config.either("n_layer", "num_hidden_layers")),
        tied_head=config.flag("tie_word_embeddings", True),
    )


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    d_model, n_heads = fields.whole("embedding_length"), fields.heads("attention.head_count")
    fields.only("attention.head_count_kv", n_heads)
    return ModelSpec(
        family="bloom",
        d_model=d_model,
        vocab_size=vocabulary(fields, checkpoint),
        context_length=fields.whole("context_length"),
        norm_eps=fields.positive("attention.layer_norm_epsilon"),
        layers=(_layer(fields, d_model, n_heads, fields.whole("feed_forward_length")),)
        * fields.layers("block_count"),
        tied_head="output.weight" not in checkpoint.tensors,
    )


def _layer(fields: Fields, d_model: int, n_heads: int, ffn_dim: int) -> LayerSpec:
    head_dim = equal_heads(fields, d_model, n_heads)
    return LayerSpec(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        ffn_dim=ffn_dim,
        attention_scale=head_dim**-0.5,
        alibi_slopes=slopes(n_heads),
    )


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    vocabulary_shape, d = (spec.vocab_size, spec.d_model), (spec.d_model,)
    embeddings = "transformer.word_embeddings"
    yield Tensor("token_embd.weight", vocabulary_shape, f"{embeddings}.weight")
    norms = {"token_embd_norm": f"{embeddings}_layernorm", "output_norm": "transformer.ln_f"}
    for norm, hf in norms.items():
        yield Tensor(f"{norm}.weight", d, f"{hf}.weight")
        yield Tensor(f"{norm}.bias", d, f"{hf}.bias")
    if not spec.tied_head:
        yield Tensor("output.weight", vocabulary_shape, "lm_head.weight")
    yield from layers(spec, _block, "transformer.h.")


def _block(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    for tensor in fused_block(spec, layer, _HF_NAMES, bias=True):
        if tensor.name.startswith("attn_qkv"):
            tensor = dataclasses.replace(
                tensor, convert=partial(_apart, layer.n_heads), hf_shape=tensor.shape
            )
        yield tensor


def _apart(n_heads: int, fused: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of Q, K and V, stored head by (heads, 3, head_dim, ...), one after another."""
    by_head = fused.reshape(n_heads, 3, -1, *fused.shape[1:])
    return by_head.swapaxes(0, 1).reshape(fused.shape)
