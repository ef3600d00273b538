"""What families share, each part one step of a decoder layer.

Weights of a layer go by GGUF's names; a bias or a norm that a family lacks is simply not there.
"""

from __future__ import annotations

from collections.abc import Callable

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.models.weights import Weights
from pellucid.ops.key_prior import KeyPrior
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, Ops


def attention(
    ops: Ops, spec: ModelSpec, layer: LayerSpec, w: Weights, x: Array, index: int, step: Step
) -> Array:
    """Self-attention of one layer on normed rows x [T, d]."""
    q, k, v = project_qkv(ops, layer, w, x)
    prior = key_prior(w)
    if "attn_q_norm.weight" in w:
        q = ops.rms_norm(q, w["attn_q_norm.weight"], spec.norm_eps)
        k = ops.rms_norm(k, w["attn_k_norm.weight"], spec.norm_eps)
    if layer.rope is not None:
        q = ops.rope(q, step.positions, layer.head_dim, layer.rope)
        k = ops.rope(k, step.positions, layer.head_dim, layer.rope)
    y = ops.attention(q, k, v, index, layer, step, prior)
    return ops.linear(y, w["attn_output.weight"], w.get("attn_output.bias"))


def key_prior(w: Weights) -> KeyPrior | None:
    """What is known of a layer's keys: what `key_statistics` found, or the bias that all of them
    hold (none where a norm comes after it)."""
    if "attn_k.mean" in w:
        return KeyPrior(w["attn_k.mean"], w["attn_k.first"], w["attn_k.feedback"])
    bias = w.get("attn_k.bias")
    return None if bias is None or "attn_k_norm.weight" in w else KeyPrior(bias)


def project_qkv(ops: Ops, layer: LayerSpec, w: Weights, x: Array) -> tuple[Array, ...]:
    """Queries, keys and values of rows x, from one fused weight or three."""
    if "attn_qkv.weight" in w:
        kv_dim = layer.n_kv_heads * layer.head_dim
        qkv = ops.linear(x, w["attn_qkv.weight"], w.get("attn_qkv.bias"))
        return ops.split(qkv, (layer.n_heads * layer.head_dim, kv_dim, kv_dim))
    return tuple(
        ops.linear(x, w[f"attn_{part}.weight"], w.get(f"attn_{part}.bias")) for part in "qkv"
    )


def feed_forward(ops: Ops, layer: LayerSpec, w: Weights, x: Array) -> Array:
    """The layer's SwiGLU, or its mixture of them."""
    if not layer.n_experts:
        return swiglu(ops, layer, w, x)
    router_logits = ops.linear(x, w["ffn_gate_inp.weight"])
    gate, up, down = (w[f"ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    return ops.experts(x, router_logits, gate, up, down, layer)


def swiglu(ops: Ops, layer: LayerSpec, w: Weights, x: Array) -> Array:
    """down(silu(gate x) * up x) (Shazeer 2020), from one fused weight or two."""
    up = ops.linear(x, w["ffn_up.weight"], w.get("ffn_up.bias"))
    if "ffn_gate.weight" in w:
        gate = ops.linear(x, w["ffn_gate.weight"], w.get("ffn_gate.bias"))
    else:
        gate, up = ops.split(up, (layer.ffn_dim, layer.ffn_dim))
    return ops.linear(ops.silu_mul(gate, up), w["ffn_down.weight"], w.get("ffn_down.bias"))


def geglu(ops: Ops, w: Weights, x: Array) -> Array:
    """down(gelu_tanh(gate x) * up x) (Shazeer 2020)."""
    gate, up = ops.linear(x, w["ffn_gate.weight"]), ops.linear(x, w["ffn_up.weight"])
    return ops.linear(ops.gelu_tanh_mul(gate, up), w["ffn_down.weight"])


def mlp(ops: Ops, w: Weights, x: Array, gelu: Callable[[Array], Array]) -> Array:
    """down(gelu(up x)), each product with its bias if it has one (Radford et al. 2018)."""
    hidden = gelu(ops.linear(x, w["ffn_up.weight"], w.get("ffn_up.bias")))
    return ops.linear(hidden, w["ffn_down.weight"], w.get("ffn_down.bias"))


def layer_norm(ops: Ops, spec: ModelSpec, w: Weights, name: str, x: Array) -> Array:
    """LayerNorm `name` of rows x, with its bias if it has one."""
    return ops.layer_norm(x, w[f"{name}.weight"], w.get(f"{name}.bias"), spec.norm_eps)


def embed(ops: Ops, spec: ModelSpec, w: Weights, step: Step) -> Array:
    """Token embeddings, [T, d]."""
    x = ops.embedding(step.tokens, w["token_embd.weight"])
    return x if spec.embedding_scale == 1.0 else ops.scale(x, spec.embedding_scale)


def head(ops: Ops, spec: ModelSpec, w: Weights, x: Array) -> Array:
    """Logits [R, vocabulary] of final, normed rows x [R, d]."""
    logits = ops.linear(x, w["token_embd.weight" if spec.tied_head else "output.weight"])
    if spec.logit_scale != 1.0:
        logits = ops.scale(logits, spec.logit_scale)
    if spec.logit_softcap is not None:
        logits = ops.softcap(logits, spec.logit_softcap)
    return logits
