"""Steps of a real model measured against each other, in turn: what a prediction is held against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pellucid.convert.source import rows_of
from pellucid.core.errors import PellucidError
from pellucid.core.plan import Plan, Span
from pellucid.core.spec import ModelSpec
from pellucid.costs import kv_bytes_per_token, pages_for
from pellucid.costs.roofline import Limits, Priced
from pellucid.engine.memory import available_memory, in_words
from pellucid.explain.timed import Timed
from pellucid.explain.whatif import (
    BATCH,
    Change,
    Outcome,
    Pair,
    Shape,
    WhatIf,
    bits,
)
from pellucid.formats import open_checkpoint
from pellucid.models.registry import Model, load_model
from pellucid.ops import Ops
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.mixes import fitting_type
from pellucid.quant.quantize import quantize
from pellucid.quant.types import TensorType

PAGE_SIZE = 16
_ROUNDS = 7  # medians of so many, shapes in turn, after one that is not counted
_CHUNK = 512


class Guessed(NamedTuple):
    """Waits for a token without and with guesses, and what became of the guesses, or why there were
    none, in words."""

    pair: Pair | None
    seen: str


def guessed(plain: Timed, ahead: Timed) -> Guessed:
    """One answer, timed without and with guesses, run by run in turn."""
    if plain.later is None or ahead.later is None:
        return Guessed(None, "not measured: the answer has one token")
    if not ahead.guessed:
        return Guessed(
            None,
            "nothing was guessed in this answer, so that there is nothing to measure: nothing in "
            "the text so far went before like its end, or a guess was not worth its time",
        )
    tokens = ahead.tokens_of_a_step
    pair = Pair(Outcome(plain.later.seconds, 1.0), Outcome(ahead.later.seconds * tokens, tokens))
    return Guessed(
        pair,
        f"measured on this answer: {ahead.accepted} of {ahead.guessed} guesses were right, and a "
        f"step gave {tokens:.2f} tokens on average",
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured: a model at `path`, used at `max_model_len` positions."""

    model: Model
    priced: Priced
    limits: Limits
    path: Path
    max_model_len: int

    def measured(
        self, what_ifs: Sequence[WhatIf], context: int, guessing: Mapping[Change, Guessed]
    ) -> list[WhatIf]:
        """`what_ifs` with what was measured of them here; other bits are one more where half of
        them cannot be. Raises `PellucidError` where memory is short."""
        one, many = step_seconds(
            [(self.model, Shape(context)), (self.model, Shape(context, BATCH))]
        )
        batch = Pair(Outcome(one, 1.0), Outcome(many, BATCH))
        found = []
        for what_if in what_ifs:
            if what_if.kind is Change.BATCH:
                what_if = replace(what_if, measured=batch)
            elif what_if.kind in guessing:
                what_if = with_guesses(what_if, guessing[what_if.kind])
            found.append(what_if)
        found.append(self._other_bits(context))
        return found

    def _other_bits(self, context: int) -> WhatIf:
        """The same model beside itself in matrices of another type."""
        type, shape = other_type(self.priced.matrix_bits), Shape(context)
        with open_checkpoint(self.path) as checkpoint:
            other = load_model(
                checkpoint,
                self.model.ops,
                context=self.max_model_len,
                prepare=lambda host: recoded(host, type),
            )
            before, after = step_seconds([(self.model, shape), (other, shape)])
        mine, theirs = (_matrix_bytes(model) for model in (self.model, other))
        what_if = bits(self.priced, self.limits, context, theirs / mine)
        pair = Pair(Outcome(before, 1.0), Outcome(after, 1.0))
        return replace(what_if, kind=Change.OTHER_BITS, measured=pair)


def with_guesses(what_if: WhatIf, found: Guessed) -> WhatIf:
    """What was measured of it, and what would have been predicted for as many right guesses."""
    pair, seen = found
    if pair is not None:
        before, after = what_if.predicted.before, what_if.predicted.after
        times = Pair(before, replace(after, tokens=pair.after.tokens)).times
        seen = f"{seen}, for which {times:.2f} x is predicted"
    return replace(what_if, measured=pair, seen=seen)


def step_seconds(steps: Sequence[tuple[Model, Shape]]) -> list[float]:
    """Median seconds of a forward pass of each, measured in turn."""
    prepared = [(model, *_prepare(model, shape)) for model, shape in steps]
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(1 + _ROUNDS):
        for (model, plan, cache), found in zip(prepared, times, strict=True):
            begin = time.perf_counter()
            model.forward(plan, cache)
            found.append(time.perf_counter() - begin)
    return [statistics.median(found[1:]) for found in times]


def other_type(bits: float) -> TensorType:
    """What has about half of `bits`; eight bits where no kernel has so few."""
    if bits > 20:
        return TensorType.F16
    return TensorType.Q4_0 if 8 <= bits <= 10 else TensorType.Q8_0


def recoded(host: HostTensor, type: TensorType) -> HostTensor:
    """A matrix in another type; vectors, and rows that do not divide into its blocks, stay."""
    if len(host.shape) < 2 or fitting_type(type, host.shape[-1]) is not type:
        return host
    shape = host.shape[1:] if host.parts else host.shape
    made = [
        quantize(rows, type)
        for raw in host.parts or (host.data,)
        for rows in rows_of(raw, host.type, shape)
    ]
    return HostTensor(host.name, host.shape, type, np.concatenate(made))


def _matrix_bytes(model: Model) -> int:
    return sum(int(w.nbytes) for _, w in model.weights.items() if len(w.shape) > 1)


def _prepare(model: Model, shape: Shape) -> tuple[Plan, object]:
    """A plan, and a cache that holds the context of each of its sequences."""
    spec, each = model.spec, pages_for(shape.context + shape.rows, PAGE_SIZE)
    _check_room(spec, model.ops, shape.batch * each)
    cache = model.ops.new_cache(spec, shape.batch * each, PAGE_SIZE)
    own = tuple(range(each))
    for start in range(0, shape.context, _CHUNK):
        length = min(_CHUNK, shape.context - start)
        span = Span(0, start, _tokens(spec, start, length), own)
        model.forward(Plan((span,), PAGE_SIZE), cache)
    filled = pages_for(shape.context, PAGE_SIZE)
    copies = [(page, i * each + page) for i in range(1, shape.batch) for page in range(filled)]
    if copies:
        model.ops.copy_pages(cache, copies)
    spans = tuple(
        Span(
            i,
            shape.context,
            _tokens(spec, shape.context + i, shape.rows),
            tuple(range(i * each, (i + 1) * each)),
            shape.rows,
        )
        for i in range(shape.batch)
    )
    return Plan(spans, PAGE_SIZE), cache


def _check_room(spec: ModelSpec, ops: Ops, pages: int) -> None:
    needed = pages * PAGE_SIZE * kv_bytes_per_token(spec, ops.kv_dtype, ops.kv_lanes)
    free = available_memory()
    if needed > free:
        raise PellucidError(
            f"--measure: {in_words(needed)} of KV cache are needed and {in_words(free)} are free: "
            "shorten the prompt"
        )


def _tokens(spec: ModelSpec, start: int, length: int) -> tuple[int, ...]:
    """Which they are does not change the work."""
    return tuple((7 + 7919 * (start + i)) % spec.vocab_size for i in range(length))
