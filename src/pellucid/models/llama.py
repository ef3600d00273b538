"""Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), and SmolLM2, which is one.

RMSNorm before each part, rotary positions, grouped-query attention, SwiGLU.
"""

from __future__ import annotations

from collections.abc import Iterator

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.fields import Fields, vocabulary
from pellucid.models.names import ends, layers
from pellucid.models.parts import attention, embed, head, swiglu
from pellucid.models.rope import rope_from_config, rope_from_gguf
from pellucid.models.weights import Tensor, Weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops

GGUF_ARCHITECTURES = ("llama",)
HF_ARCHITECTURES = ("LlamaForCausalLM",)


def forward(ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array:
    """Logits [R, vocabulary] of the rows the step asks for."""
    x = embed(ops, spec, weights, step)  # [T, d]
    for index, layer in enumerate(spec.layers):
        w = weights.layer(index)
        normed = ops.rms_norm(x, w["attn_norm.weight"], spec.norm_eps)
        x = x + attention(ops, spec, layer, w, normed, index, step)
        x = x + swiglu(ops, w, ops.rms_norm(x, w["ffn_norm.weight"], spec.norm_eps))
    x = ops.take_rows(x, step.logit_rows)  # [R, d]
    return head(ops, spec, weights, ops.rms_norm(x, weights["output_norm.weight"], spec.norm_eps))


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    config.only("hidden_act", "silu")
    d_model, n_heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    head_dim = config.whole("head_dim", d_model // n_heads)
    trained = config.whole("max_position_embeddings")
    layer = LayerSpec(
        n_heads=n_heads,
        n_kv_heads=config.whole("num_key_value_heads", n_heads),
        head_dim=head_dim,
        ffn_dim=config.whole("intermediate_size"),
        attention_scale=head_dim**-0.5,
        rope=rope_from_config(config, head_dim, context or trained, 10000.0),
    )
    config.only("mlp_bias", False)
    config.harmless(["attention_bias"])  # its tensors are optional
    return ModelSpec(
        family="llama",
        d_model=d_model,
        vocab_size=config.whole("vocab_size"),
        context_length=trained,
        norm_eps=config.number("rms_norm_eps", 1e-6),
        layers=(layer,) * config.whole("num_hidden_layers"),
        tied_head=config.flag("tie_word_embeddings", False),
    )


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    d_model, n_layers = fields.whole("embedding_length"), fields.whole("block_count")
    n_heads = fields.whole("attention.head_count")
    head_dim = fields.whole("attention.key_length", d_model // n_heads)
    fields.only("attention.value_length", head_dim)
    trained = fields.whole("context_length")
    layer = LayerSpec(
        n_heads=n_heads,
        n_kv_heads=fields.whole("attention.head_count_kv", n_heads),
        head_dim=head_dim,
        ffn_dim=fields.whole("feed_forward_length"),
        attention_scale=head_dim**-0.5,
        # Its converter reorders the rows of Q and K to turn neighbouring features.
        rope=rope_from_gguf(fields, checkpoint, head_dim, context or trained, "interleaved"),
    )
    return ModelSpec(
        family="llama",
        d_model=d_model,
        vocab_size=vocabulary(fields, checkpoint),
        context_length=trained,
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        layers=(layer,) * n_layers,
        tied_head="output.weight" not in checkpoint.tensors,
    )


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    yield from ends(spec)
    yield from layers(spec, attention_names)
    yield from layers(spec, mlp_names)


def attention_names(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    """Norm, Q, K, V with or without bias, and output of one layer."""
    d, q_dim, kv_dim = (
        spec.d_model,
        layer.n_heads * layer.head_dim,
        layer.n_kv_heads * layer.head_dim,
    )
    yield Tensor("attn_norm.weight", (d,), "input_layernorm.weight")
    for part, rows in ("q", q_dim), ("k", kv_dim), ("v", kv_dim):
        hf = f"self_attn.{part}_proj"
        yield Tensor(f"attn_{part}.weight", (rows, d), f"{hf}.weight")
        yield Tensor(f"attn_{part}.bias", (rows,), f"{hf}.bias", optional=True)
    yield Tensor("attn_output.weight", (d, q_dim), "self_attn.o_proj.weight")
    yield Tensor("attn_output.bias", (d,), "self_attn.o_proj.bias", optional=True)


def mlp_names(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    """Norm and SwiGLU of one layer."""
    d, ffn = spec.d_model, layer.ffn_dim
    yield Tensor("ffn_norm.weight", (d,), "post_attention_layernorm.weight")
    yield Tensor("ffn_gate.weight", (ffn, d), "mlp.gate_proj.weight")
    yield Tensor("ffn_up.weight", (ffn, d), "mlp.up_proj.weight")
    yield Tensor("ffn_down.weight", (d, ffn), "mlp.down_proj.weight")
