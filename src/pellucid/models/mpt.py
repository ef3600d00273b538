"""MPT (MosaicML 2023): ALiBi, LayerNorm and exact GELU without biases, tied head.

Two values that transformers leaves at their defaults count here, as in the code the models were
trained with: `alibi_bias_max` and `logit_scale`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pellucid.core.errors import UnsupportedError
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models.alibi import slopes
from pellucid.models.fields import Fields, equal_heads, vocabulary
from pellucid.models.names import fused_block, layers
from pellucid.models.parts import embed, key_prior, layer_norm, mlp
from pellucid.models.weights import Tensor, Weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops

GGUF_ARCHITECTURES = ("mpt",)
HF_ARCHITECTURES = ("MptForCausalLM", "MPTForCausalLM")

_HF_NAMES = {
    "attn_norm": "norm_1",
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.out_proj",
    "ffn_norm": "norm_2",
    "ffn_up": "ffn.up_proj",
    "ffn_down": "ffn.down_proj",
}


def enter(ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array:
    """Rows [T, d] for the first layer."""
    return embed(ops, spec, weights, step)


def decoder_layer(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """One layer of rows x [T, d]."""
    normed = layer_norm(ops, spec, w, "attn_norm", x)
    x = x + _attention(ops, spec, layer, w, normed, index, step)
    return x + mlp(ops, w, layer_norm(ops, spec, w, "ffn_norm", x), ops.gelu)


def leave(ops: Ops, spec: ModelSpec, weights: Weights, x: Array) -> Array:
    """Rows x [R, d], normed for the head."""
    return layer_norm(ops, spec, weights, "output_norm", x)


def _attention(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """Queries, keys and values held within `clip_qkv`, where a model has it."""
    qkv = ops.linear(x, w["attn_qkv.weight"], w.get("attn_qkv.bias"))  # [T, 3 d]
    if "clip_qkv" in spec.extra:
        qkv = ops.clamp(qkv, float(spec.extra["clip_qkv"]))
    q, k, v = ops.split(qkv, (spec.d_model,) * 3)
    y = ops.attention(q, k, v, index, layer, step, key_prior(w))
    return ops.linear(y, w["attn_output.weight"], w.get("attn_output.bias"))


def spec_from_config(config: Fields, context: int | None) -> ModelSpec:
    d_model, n_heads = config.whole("d_model"), config.heads("n_heads")
    config.only("norm_type", "low_precision_layernorm", "layernorm")
    config.only("ffn_config", {"ffn_type": "mptmlp"}, {"ffn_type": "mptmlp", "fc_type": "torch"})
    # `learned_pos_emb` is without effect beside ALiBi; the others are about training.
    config.harmless(
        "learned_pos_emb embedding_fraction init_config init_device verbose fc_type"
        " tokenizer_name".split()
    )
    layer, extra = _from_attn_config(config, d_model, n_heads)
    return ModelSpec(
        family="mpt",
        d_model=d_model,
        vocab_size=config.whole("vocab_size"),
        context_length=config.whole("max_seq_len", 2048),
        norm_eps=config.positive("layer_norm_epsilon", 1e-5),
        layers=(layer,) * config.layers("n_layers"),
        tied_head=config.flag("tie_word_embeddings", True),
        logit_scale=_logit_scale(config, d_model),
        extra={**extra, "biased": not config.flag("no_bias", True)},
    )


def _from_attn_config(
    config: Fields, d_model: int, n_heads: int
) -> tuple[LayerSpec, dict[str, float | int | str | bool]]:
    given = config.section("attn_config")
    given.only("attn_type", "multihead_attention")
    given.only("kv_n_heads", n_heads)
    given.only("alibi", True)
    given.only("sliding_window_size", -1)
    for key in "prefix_lm qk_ln qk_gn attn_uses_sequence_id rope".split():
        given.only(key, False)
    given.harmless("attn_impl rope_theta rope_impl rope_dail_config rope_hf_config".split())
    layer = _layer(
        config,
        d_model,
        n_heads,
        ffn_dim=config.whole("expansion_ratio", 4) * d_model,
        max_bias=given.positive("alibi_bias_max", 8.0),
        scale=given.positive("softmax_scale") if "softmax_scale" in given else None,
    )
    clip = {"clip_qkv": given.positive("clip_qkv")} if "clip_qkv" in given else {}
    given.finish_config()
    return layer, {**clip}


def _logit_scale(config: Fields, d_model: int) -> float:
    if config.raw("logit_scale") == "inv_sqrt_d_model":
        return float(d_model**-0.5)
    return config.positive("logit_scale", 1.0)


def spec_from_gguf(fields: Fields, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
    d_model, n_heads = fields.whole("embedding_length"), fields.heads("attention.head_count")
    fields.only("attention.head_count_kv", n_heads)
    if fields.number("attention.max_alibi_bias") == 0.0:
        raise UnsupportedError(f"{fields.path}: MPT without ALiBi is not implemented")
    layer = _layer(
        fields,
        d_model,
        n_heads,
        ffn_dim=fields.whole("feed_forward_length"),
        max_bias=fields.positive("attention.max_alibi_bias"),
    )
    clip = fields.number("attention.clamp_kqv", 0.0)  # 0 is off
    return ModelSpec(
        family="mpt",
        d_model=d_model,
        vocab_size=vocabulary(fields, checkpoint),
        context_length=fields.whole("context_length"),
        norm_eps=fields.positive("attention.layer_norm_epsilon"),
        layers=(layer,) * fields.layers("block_count"),
        tied_head="output.weight" not in checkpoint.tensors,
        extra={
            **({"clip_qkv": fields.positive("attention.clamp_kqv")} if clip else {}),
            "biased": "output_norm.bias" in checkpoint.tensors,
        },
    )


def _layer(
    fields: Fields,
    d_model: int,
    n_heads: int,
    *,
    ffn_dim: int,
    max_bias: float,
    scale: float | None = None,
) -> LayerSpec:
    head_dim = equal_heads(fields, d_model, n_heads)
    return LayerSpec(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        ffn_dim=ffn_dim,
        attention_scale=head_dim**-0.5 if scale is None else scale,
        alibi_slopes=slopes(n_heads, max_bias),
    )


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    vocabulary_shape, d = (spec.vocab_size, spec.d_model), (spec.d_model,)
    yield Tensor("token_embd.weight", vocabulary_shape, "transformer.wte.weight")
    yield Tensor("output_norm.weight", d, "transformer.norm_f.weight")
    if spec.extra["biased"]:
        yield Tensor("output_norm.bias", d, "transformer.norm_f.bias")
    if not spec.tied_head:
        yield Tensor("output.weight", vocabulary_shape, "lm_head.weight")
    yield from layers(spec, _block, "transformer.blocks.")


def _block(spec: ModelSpec, layer: LayerSpec) -> Iterator[Tensor]:
    return fused_block(spec, layer, _HF_NAMES, bias=bool(spec.extra["biased"]))
