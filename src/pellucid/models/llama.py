"""Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), and SmolLM2, which is one.

RMSNorm before each part, rotary positions, grouped-query attention, SwiGLU. Most families since
are this with a change or two, so the second half of the file is theirs too: the keys and tensors
that Llama's files named first.

GGUF files of architecture `llama` also hold Mistral and Mixtral; the experts show which it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.fields import Fields, vocabulary
from pellucid.models.names import bias, ends, expert_names, layers
from pellucid.models.parts import attention, embed, feed_forward
from pellucid.models.rope import rope_from_config, rope_from_gguf
from pellucid.models.weights import Rows, Tensor, Weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops

GGUF_ARCHITECTURES = ("llama",)
HF_ARCHITECTURES = ("LlamaForCausalLM",)


def enter(ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array:
    """Rows [T, d] for the first layer."""
    return embed(ops, spec, weights, step)


def decoder_layer(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """One layer of rows x [T, d]."""
    normed = ops.rms_norm(x, w["attn_norm.weight"], spec.norm_eps)
    x = x + attention(ops, spec, layer, w, normed, index, step)
    normed = ops.rms_norm(x, w["ffn_norm.weight"], spec.norm_eps)
    return x + feed_forward(ops, layer, w, normed)


def leave(ops: Ops, spec: ModelSpec, weights: Weights, x: Array) -> Array:
    """Rows x [R, d], normed for the head."""
    return ops.rms_norm(x, weights["output_norm.weight"], spec.norm_eps)


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    attention_bias = config.flag("attention_bias", False)
    return model_from_config(
        config,
        "llama",
        (layer_from_config(config, context),) * config.layers("num_hidden_layers"),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
    )


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    # The converter reorders the rows of Q and K so that neighbouring features turn together.
    layer = layer_from_gguf(fields, checkpoint, context, "interleaved")
    window = fields.whole("attention.sliding_window", 0, low=0) or None
    n_experts = fields.whole("expert_count", 0, low=0, high=MAX_EXPERTS)
    layer = dataclasses.replace(layer, window=window, n_experts=n_experts)
    if n_experts:
        used = fields.whole("expert_used_count", high=n_experts)
        layer = dataclasses.replace(layer, n_experts_used=used, normalize_expert_weights=True)
    else:
        fields.only("expert_used_count", 0)
    stack = (layer,) * fields.layers("block_count")
    return model_from_gguf(fields, checkpoint, "mixtral" if n_experts else "llama", stack)


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    yield from ends(spec)
    yield from layers(spec, attention_names)
    mixtral = partial(expert_names, block="block_sparse_moe", parts=("w1", "w3", "w2"))
    yield from layers(spec, mixtral if spec.layers[0].n_experts else mlp_names)


# What other families share with this

MAX_EXPERTS = 1024  # 512 in the largest known


def window_from_config(config: Fields, default: int | None = None) -> int | None:
    """`sliding_window`: null means none, no word of it `default`."""
    if not config.given("sliding_window"):
        return default
    return config.whole("sliding_window") if "sliding_window" in config else None


def layer_from_config(
    config: Fields,
    context: int | None,
    *,
    rope_base: float = 10000.0,
    head_dim: int | None = None,
) -> LayerSpec:
    """A dense layer; the last two are what the family takes when its config does not say."""
    config.only("hidden_act", "silu")
    d_model, n_heads = config.whole("hidden_size"), config.heads("num_attention_heads")
    head_dim = config.whole("head_dim", head_dim or d_model // n_heads)
    trained = config.whole("max_position_embeddings")
    return LayerSpec(
        n_heads=n_heads,
        n_kv_heads=config.heads("num_key_value_heads", n_heads),
        head_dim=head_dim,
        ffn_dim=config.whole("intermediate_size"),
        attention_scale=head_dim**-0.5,
        rope=rope_from_config(config, head_dim, context or trained, rope_base),
    )


def model_from_config(
    config: Fields,
    family: str,
    stack: tuple[LayerSpec, ...],
    *,
    norm_eps: float = 1e-6,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
) -> ModelSpec:
    """The model around its layers; `extra` says which biases there are."""
    return ModelSpec(
        family=family,
        d_model=config.whole("hidden_size"),
        vocab_size=config.whole("vocab_size"),
        context_length=config.whole("max_position_embeddings"),
        norm_eps=config.positive("rms_norm_eps", norm_eps),
        layers=stack,
        tied_head=config.flag("tie_word_embeddings", False),
        extra={"qkv_bias": qkv_bias, "output_bias": output_bias, "mlp_bias": mlp_bias},
    )


def layer_from_gguf(
    fields: Fields, checkpoint: Checkpoint, context: int | None, style: str
) -> LayerSpec:
    """A dense layer; `style` is how the family's converter leaves the features that turn."""
    d_model, n_heads = fields.whole("embedding_length"), fields.heads("attention.head_count")
    head_dim = fields.whole("attention.key_length", d_model // n_heads)
    fields.only("attention.value_length", head_dim)
    fields.only("attention.causal", True)
    trained = fields.whole("context_length")
    return LayerSpec(
        n_heads=n_heads,
        n_kv_heads=fields.heads("attention.head_count_kv", n_heads),
        head_dim=head_dim,
        ffn_dim=fields.whole("feed_forward_length"),
        attention_scale=head_dim**-0.5,
        rope=rope_from_gguf(fields, checkpoint, head_dim, context or trained, style),
    )


def model_from_gguf(
    fields: Fields, checkpoint: Checkpoint, family: str, stack: tuple[LayerSpec, ...]
) -> ModelSpec:
    # Set by converters of Meta's own files; the order of the tensors that it names is the usual.
    fields.only("tensor_data_layout", "Meta AI original pth")
    parts = {"qkv_bias": "attn_q", "output_bias": "attn_output", "mlp_bias": "ffn_down"}
    biases = {key: f"blk.0.{part}.bias" in checkpoint.tensors for key, part in parts.items()}
    biases["qkv_bias"] |= "blk.0.attn_qkv.bias" in checkpoint.tensors
    return ModelSpec(
        family=family,
        d_model=fields.whole("embedding_length"),
        vocab_size=vocabulary(fields, checkpoint),
        context_length=fields.whole("context_length"),
        norm_eps=fields.positive("attention.layer_norm_rms_epsilon"),
        layers=stack,
        tied_head="output.weight" not in checkpoint.tensors,
        extra={**biases},
    )


def attention_names(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    """Norm, Q, K, V and output of one layer, with the biases that `extra` speaks of."""
    d, q_dim, kv_dim = (
        spec.d_model,
        layer.n_heads * layer.head_dim,
        layer.n_kv_heads * layer.head_dim,
    )
    yield Tensor("attn_norm.weight", (d,), "input_layernorm.weight")
    total, first = q_dim + 2 * kv_dim, 0
    for part, n in ("q", q_dim), ("k", kv_dim), ("v", kv_dim):
        hf = f"self_attn.{part}_proj"
        fused = Rows("attn_qkv.weight", first, total)
        yield Tensor(f"attn_{part}.weight", (n, d), f"{hf}.weight", rows=fused)
        yield from bias(
            spec, "qkv_bias", f"attn_{part}", n, hf, fused._replace(whole="attn_qkv.bias")
        )
        first += n
    yield Tensor("attn_output.weight", (d, q_dim), "self_attn.o_proj.weight")
    yield from bias(spec, "output_bias", "attn_output", d, "self_attn.o_proj")


def qk_norm_names(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    """Norms of every query and key head (Henry et al. 2020)."""
    yield Tensor("attn_q_norm.weight", (layer.head_dim,), "self_attn.q_norm.weight")
    yield Tensor("attn_k_norm.weight", (layer.head_dim,), "self_attn.k_norm.weight")


def mlp_names(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    """Norm and SwiGLU of one layer."""
    d, ffn = spec.d_model, layer.ffn_dim
    yield Tensor("ffn_norm.weight", (d,), "post_attention_layernorm.weight")
    for part, shape in ("gate", (ffn, d)), ("up", (ffn, d)), ("down", (d, ffn)):
        yield Tensor(f"ffn_{part}.weight", shape, f"mlp.{part}_proj.weight")
        yield from bias(spec, "mlp_bias", f"ffn_{part}", shape[0], f"mlp.{part}_proj")
