"""What a watched pass shows: the next token, the logit lens, and what a head attended to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput
from pellucid.explain.inside import Inside

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
TextOf = Callable[[int], str]

# A head's whole matrix is kept for prompts of at most so many tokens: a page cannot show more.
MATRIX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Likely:
    """A token and its probability, from 0 to 1."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class LensRow:
    """What the model would say after `layers` of its layers: the likeliest token, and how likely
    the followed one is there, with its rank from 1."""

    layers: int
    top: Likely
    followed_probability: float
    followed_rank: int


@dataclass(frozen=True, slots=True)
class Attention:
    """What one head of one layer took from each position, for the token that comes next.

    weights: one for each token of the prompt; they sum to 1. matrix: the same for every position
    of the prompt, row i its own, or none if the prompt is long. chosen: why this head.
    """

    layer: int
    head: int
    chosen: str
    weights: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...] | None


def probabilities(logits: Float32) -> Float64:
    """softmax over the last axis, in float64; each row sums to 1."""
    wide = logits.astype(np.float64)
    shares = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True), np.float64)


def likeliest(row: Float64, count: int, text_of: TextOf) -> list[Likely]:
    """The `count` likeliest tokens of a row of probabilities; ties: lower id first."""
    order = np.argsort(-row, kind="stable")[:count]
    return [Likely(int(i), text_of(int(i)), float(row[i])) for i in order]


def lens(inside: Inside, followed: int, text_of: TextOf) -> list[LensRow]:
    """The logit lens (nostalgebraist 2020): each layer's residual stream, read as if it were the
    last one's."""
    rows = []
    for layers, row in enumerate(probabilities(inside.lens)):
        share = row[followed]
        rank = 1 + int(np.count_nonzero(row > share))
        rows.append(LensRow(layers, likeliest(row, 1, text_of)[0], float(share), rank))
    return rows


def attention(inside: Inside, layer: int | None, head: int | None) -> Attention:
    """The head that was asked for; left to us, the most focused one.

    Raises `BadInput` for a layer or head that the model has not.
    """
    spec, last = inside.spec, len(inside.token_ids) - 1
    check_head(spec.n_layers, [each.n_heads for each in spec.layers], layer, head)
    if layer is not None and head is not None:
        chosen = "as asked"
    else:
        layer, head, chosen = _most_focused(inside, layer, head)
    heads = inside.heads[layer]
    matrix = None
    if last < MATRIX_TOKENS:
        matrix = tuple(tuple(map(float, row)) for row in heads.matrix(head))
    weights = tuple(map(float, heads.row(last)[head]))
    return Attention(layer, head, chosen, weights, matrix)


def check_head(n_layers: int, heads_of: list[int], layer: int | None, head: int | None) -> None:
    """Raises `BadInput` naming the flag that is out of range."""
    if layer is not None and not 0 <= layer < n_layers:
        raise BadInput(f"--layer {layer}: the model has layers 0 to {n_layers - 1}")
    most = max(heads_of) if layer is None else heads_of[layer]
    if head is not None and not 0 <= head < most:
        where = "the model" if layer is None else f"layer {layer}"
        raise BadInput(f"--head {head}: {where} has heads 0 to {most - 1}")


def _most_focused(inside: Inside, layer: int | None, head: int | None) -> tuple[int, int, str]:
    """The head that puts the largest share on one earlier token, the first one aside: many heads
    that have nothing to say look at the first token (Xiao et al. 2023)."""
    last = len(inside.token_ids) - 1
    between = slice(1, last) if last > 1 else slice(0, last + 1)
    best = (-1.0, 0, 0)
    for index, heads in enumerate(inside.heads):
        if layer is not None and index != layer:
            continue
        for number, row in enumerate(heads.row(last)):
            if head is None or number == head:
                best = max(best, (float(row[between].max()), -index, -number))
    what = "token between the first and the last" if last > 1 else "token"
    of = "of all heads" if layer is None and head is None else "of those asked for"
    return -best[1], -best[2], f"the largest share on one {what}, {of}"
