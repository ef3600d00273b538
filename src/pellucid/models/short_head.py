"""A model with the first rows of its head alone: scores of the first tokens, and of no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pellucid.formats import Checkpoint
from pellucid.models.registry import Model
from pellucid.models.weights import locate
from pellucid.ops.vocabulary import HostTensor


def with_short_head(
    model: Model,
    checkpoint: Checkpoint,
    n_rows: int,
    prepare: Callable[[HostTensor], HostTensor] | None = None,
) -> Model:
    """`model`, which was loaded from `checkpoint` as `prepare` makes tensors, with logits [R,
    n_rows]. Every other weight is shared."""
    spec, ops = model.spec, model.ops
    name = "token_embd.weight" if spec.tied_head else "output.weight"
    tensors = [one for one in model.family.tensors(spec) if one.name == name]
    [stored] = locate(checkpoint, tensors, lambda _: True)
    host = stored.host(exact=ops.exact and prepare is None)
    cut = _first_rows(host, n_rows)
    head = ops.load(cut if prepare is None else prepare(cut))
    spec = dataclasses.replace(spec, tied_head=False)
    return Model(spec, ops, model.weights.with_one("output.weight", head), model.family)


def _first_rows(host: HostTensor, n_rows: int) -> HostTensor:
    rows, features = host.shape
    parts = host.parts or (host.data,)
    [data] = parts  # a head is one matrix
    first = data[: data.size // rows * n_rows]
    return HostTensor("output.weight", (n_rows, features), host.type, first, host.release)
