"""Where a decoder's tensors go by the same names in most families."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.models.weights import Tensor


def ends(spec: ModelSpec) -> Iterator[Tensor]:
    """Embedding, final norm and, unless it is tied, the head."""
    vocabulary = (spec.vocab_size, spec.d_model)
    yield Tensor("token_embd.weight", vocabulary, "model.embed_tokens.weight")
    yield Tensor("output_norm.weight", (spec.d_model,), "model.norm.weight")
    # A tied head is often stored all the same.
    yield Tensor("output.weight", vocabulary, "lm_head.weight", optional=spec.tied_head)


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
            )
