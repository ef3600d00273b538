"""Where a decoder's tensors go by the same names in most families."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.models.weights import Rows, Tensor


def ends(spec: ModelSpec) -> Iterator[Tensor]:
    """Embedding, final norm and, unless it is tied, the head."""
    vocabulary = (spec.vocab_size, spec.d_model)
    yield Tensor("token_embd.weight", vocabulary, "model.embed_tokens.weight")
    yield Tensor("output_norm.weight", (spec.d_model,), "model.norm.weight")
    if not spec.tied_head:
        yield Tensor("output.weight", vocabulary, "lm_head.weight")


def bias(
    spec: ModelSpec, which: str, name: str, n: int, hf: str, rows: Rows | None = None
) -> Iterator[Tensor]:
    """A product's bias: there or not as `spec.extra[which]` says, or else as the file has it."""
    if spec.extra.get(which, True):
        optional = which not in spec.extra
        yield Tensor(f"{name}.bias", (n,), f"{hf}.bias", optional=optional, rows=rows)


def expert_names(
    spec: ModelSpec, layer: LayerSpec, *, block: str, parts: tuple[str, str, str]
) -> Iterator[Tensor]:
    """Norm, router and experts of one layer. `parts` are a Hugging Face checkpoint's names for
    the gate, up and down matrices of each expert of `block`; it stores them one by one."""
    d, ffn, n = spec.d_model, layer.ffn_dim, layer.n_experts
    yield Tensor("ffn_norm.weight", (d,), "post_attention_layernorm.weight")
    yield Tensor("ffn_gate_inp.weight", (n, d), f"{block}.gate.weight")
    shapes = {"gate": (n, ffn, d), "up": (n, ffn, d), "down": (n, d, ffn)}
    for (part, shape), hf in zip(shapes.items(), parts, strict=True):
        each = tuple(f"{block}.experts.{e}.{hf}.weight" for e in range(n))
        yield Tensor(f"ffn_{part}_exps.weight", shape, stacked=each)


def layers(
    spec: ModelSpec,
    names: Callable[[ModelSpec, LayerSpec], Iterable[Tensor]],
    hf_prefix: str = "model.layers.",
) -> Iterator[Tensor]:
    """`names` of one layer, for every layer."""
    for index, layer in enumerate(spec.layers):
        for tensor in names(spec, layer):
            yield dataclasses.replace(
                tensor,
                name=f"blk.{index}.{tensor.name}",
                hf=f"{hf_prefix}{index}.{tensor.hf}",
                stacked=tuple(f"{hf_prefix}{index}.{part}" for part in tensor.stacked),
                rows=tensor.rows and tensor.rows._replace(whole=f"blk.{index}.{tensor.rows.whole}"),
            )


def fused_block(
    spec: ModelSpec, layer: LayerSpec, hf: Mapping[str, str], *, bias: bool
) -> Iterator[Tensor]:
    """The block of GPT-2 and those after it: norm, fused QKV, output, norm, two-layer MLP.

    `hf` maps our names of the six parts to a Hugging Face checkpoint's.
    """
    d, ffn = spec.d_model, layer.ffn_dim
    qkv = (layer.n_heads + 2 * layer.n_kv_heads) * layer.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (d,),
        "attn_qkv": (qkv, d),
        "attn_output": (d, layer.n_heads * layer.head_dim),
        "ffn_norm": (d,),
        "ffn_up": (ffn, d),
        "ffn_down": (d, ffn),
    }
    for part, shape in shapes.items():
        yield Tensor(f"{part}.weight", shape, f"{hf[part]}.weight")
        if bias:
            yield Tensor(f"{part}.bias", shape[:1], f"{hf[part]}.bias")
