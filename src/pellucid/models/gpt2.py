"""GPT-2 (Radford et al. 2019): learnt positions, LayerNorm before each part, GELU, tied head."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from pellucid.core.errors import BadInput
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.fields import Fields, equal_heads, vocabulary
from pellucid.models.names import fused_block, layers
from pellucid.models.parts import attention, embed, layer_norm, mlp
from pellucid.models.weights import Tensor, Weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops

GGUF_ARCHITECTURES = ("gpt2",)
HF_ARCHITECTURES = ("GPT2LMHeadModel",)

_EXACT_GELU = ("gelu", "gelu_python")
_TANH_GELU = ("gelu_new", "gelu_fast", "gelu_pytorch_tanh")  # one formula, three names

_HF_NAMES = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


def enter(ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array:
    """Rows [T, d] for the first layer."""
    positions = ops.embedding(step.positions, weights["position_embd.weight"])
    return embed(ops, spec, weights, step) + positions


def decoder_layer(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """One layer of rows x [T, d]."""
    gelu = ops.gelu if spec.extra["exact_gelu"] else ops.gelu_tanh
    normed = layer_norm(ops, spec, w, "attn_norm", x)
    x = x + attention(ops, spec, layer, w, normed, index, step)
    return x + mlp(ops, w, layer_norm(ops, spec, w, "ffn_norm", x), gelu)


def leave(ops: Ops, spec: ModelSpec, weights: Weights, x: Array) -> Array:
    """Rows x [R, d], normed for the head."""
    return layer_norm(ops, spec, weights, "output_norm", x)


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    d_model, n_heads = config.whole("n_embd"), config.heads("n_head")
    head_dim = equal_heads(config, d_model, n_heads)
    trained = _positions(config, "n_positions", context)
    config.only("n_ctx", trained)
    config.only("n_special", 0)
    config.only("add_cross_attention", False)
    config.only("activation_function", *_TANH_GELU, *_EXACT_GELU)
    config.harmless(["reorder_and_upcast_attn"])  # scores are float32 here whatever the weights
    layer = LayerSpec(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        ffn_dim=config.whole("n_inner", 4 * d_model),
        attention_scale=head_dim**-0.5 if config.flag("scale_attn_weights", True) else 1.0,
    )
    stack = (layer,) * config.layers("n_layer")
    if config.flag("scale_attn_by_inverse_layer_idx", False):  # Mistral's GPT-2 runs
        stack = tuple(
            dataclasses.replace(layer, attention_scale=layer.attention_scale / (i + 1))
            for i in range(len(stack))
        )
    return ModelSpec(
        family="gpt2",
        d_model=d_model,
        vocab_size=config.whole("vocab_size"),
        context_length=trained,
        norm_eps=config.positive("layer_norm_epsilon", 1e-5),
        layers=stack,
        tied_head=config.flag("tie_word_embeddings", True),
        extra={"exact_gelu": config.text("activation_function", "gelu_new") in _EXACT_GELU},
    )


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    d_model, n_heads = fields.whole("embedding_length"), fields.heads("attention.head_count")
    fields.only("attention.head_count_kv", n_heads)
    head_dim = equal_heads(fields, d_model, n_heads)
    layer = LayerSpec(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        ffn_dim=fields.whole("feed_forward_length"),
        attention_scale=head_dim**-0.5,
    )
    return ModelSpec(
        family="gpt2",
        d_model=d_model,
        vocab_size=vocabulary(fields, checkpoint),
        context_length=_positions(fields, "context_length", context),
        norm_eps=fields.positive("attention.layer_norm_epsilon"),
        layers=(layer,) * fields.layers("block_count"),
        tied_head="output.weight" not in checkpoint.tensors,
        extra={"exact_gelu": False},  # the format has no key for it
    )


def _positions(fields: Fields, key: str, context: int | None) -> int:
    """How many positions the model has learnt; there is nothing to extend them by."""
    learnt = fields.whole(key)
    if context is not None and context > learnt:
        raise BadInput(
            f"{fields.path}: {context} positions were asked for and the model has learnt "
            f"{learnt}: lower max_model_len"
        )
    return learnt


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    d, vocabulary_shape = spec.d_model, (spec.vocab_size, spec.d_model)
    yield Tensor("token_embd.weight", vocabulary_shape, "transformer.wte.weight")
    yield Tensor("position_embd.weight", (spec.context_length, d), "transformer.wpe.weight")
    yield Tensor("output_norm.weight", (d,), "transformer.ln_f.weight")
    yield Tensor("output_norm.bias", (d,), "transformer.ln_f.bias")
    if not spec.tied_head:
        yield Tensor("output.weight", vocabulary_shape, "lm_head.weight")
    yield from layers(spec, _block, "transformer.h.")


def _block(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    """OpenAI's checkpoints, and so Hugging Face's, hold matrices as (in, out)."""
    for tensor in fused_block(spec, layer, _HF_NAMES, bias=True):
        if len(tensor.shape) == 2:
            tensor = dataclasses.replace(tensor, convert=np.transpose, hf_shape=tensor.shape[::-1])
        yield tensor
