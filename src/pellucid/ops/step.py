"""Step: a plan lowered to arrays, as the operations read it."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.core.plan import Plan


class Sequence(NamedTuple):
    """One span's rows: `first_row` to `first_row + length - 1` of the flat batch hold its
    positions `start` to `start + length - 1`; `pages` maps positions to physical pages."""

    first_row: int
    length: int
    start: int
    pages: collections.abc.Sequence[int]


@dataclass(frozen=True, slots=True)
class Step:
    """Rows of all spans, one after the other.

    tokens, positions: int32 [T]. logit_rows: int32 [R], the rows whose logits are wanted, in
    order. `cache` is what the backend's `new_cache` gave; operations that need it know its form.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    logit_rows: NDArray[np.int32]
    sequences: tuple[Sequence, ...]
    page_size: int
    cache: object


def lower(plan: Plan, cache: object) -> Step:
    """`plan` as arrays, to run against `cache`.

    Raises `ValueError` naming the span whose pages do not cover it or whose logits it does not
    have: a scheduler's mistake, never a user's.
    """
    sequences: list[Sequence] = []
    tokens: list[int] = []
    positions: list[int] = []
    logit_rows: list[int] = []
    for span in plan.spans:
        start, pages, wanted, first_row = span.start, span.pages, span.n_logits, len(tokens)
        length = len(span.tokens)
        if length == 0 or len(pages) * plan.page_size < start + length:
            raise ValueError(f"sequence {span.sequence}: {len(pages)} pages for {span}")
        if not 0 <= wanted <= length:
            raise ValueError(f"sequence {span.sequence}: {wanted} logits of {length} rows")
        tokens += span.tokens
        positions += range(start, start + length)
        logit_rows += range(first_row + length - wanted, first_row + length)
        sequences.append(Sequence(first_row, length, start, pages))
    return Step(
        np.asarray(tokens, np.int32),
        np.asarray(positions, np.int32),
        np.asarray(logit_rows, np.int32),
        tuple(sequences),
        plan.page_size,
        cache,
    )
