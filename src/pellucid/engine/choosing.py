"""Choosing: from rows of logits to tokens, and as far along each draft as they agree with it.

A draft changes no choice. Each position of it is chosen as if nothing had been guessed: the draw
looks at an answer that has taken every token before, so penalties, grammars, stop strings and
limits need no rule of their own, and nothing is ever taken back. A guess only decides whether the
next row is of use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment, TokenChoice
from pellucid.core.plan import Plan
from pellucid.engine.answer import Answer
from pellucid.engine.generation import Generation
from pellucid.sampling import Draw, Sampler
from pellucid.scheduling import Sequence

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Job:
    """What becomes of a sequence's logits: an answer's next token."""

    generation: Generation
    answer: Answer
    sequence: Sequence


class Row(NamedTuple):
    """The row of logits of a job's next token, and what was guessed for it and those after it."""

    job: Job
    row: int
    draft: tuple[int, ...]


Chosen = tuple[Row, TokenChoice]
Fail = Callable[[Job, PellucidError], None]


def first_rows(
    plan: Plan, jobs: Mapping[int, Job], drafts: Mapping[int, tuple[int, ...]]
) -> list[Row]:
    """Where each job of the plan finds the logits of its next token."""
    rows: list[Row] = []
    row = -1
    for span in plan.spans:
        row += span.n_logits
        job = jobs.get(span.sequence)
        if job is not None and span.n_logits:
            draft = drafts.get(span.sequence, ()) if drafts else ()
            rows.append(Row(job, row - len(draft), draft))
    return rows


def choose(
    sampler: Sampler, logits: Float32, rows: list[Row], jobs: Collection[int], fail: Fail
) -> list[Chosen]:
    """A token for each row; `fail` ends jobs that can have none. `jobs` are those alive."""
    drawing, draws = _draws(rows, fail)
    choices = sampler.choose_rows(logits, [row.row for row in drawing], draws)
    chosen: list[Chosen] = []
    for row, choice in zip(drawing, choices, strict=True):
        if isinstance(choice, TokenChoice):
            chosen.append((row, choice))
        else:
            fail(row.job, choice)
    if len(chosen) == len(rows):
        return chosen
    return [pair for pair in chosen if pair[0].job.sequence.id in jobs]


def take(
    sampler: Sampler, logits: Float32, chosen: list[Chosen], jobs: Collection[int], fail: Fail
) -> list[tuple[Job, Increment]]:
    """Each job takes its token, and goes on while what it takes is what was guessed and the answer
    has not ended. Returns what it all adds, once for each job alive."""
    taken: dict[int, tuple[Job, Increment]] = {}
    while chosen:
        further: list[Row] = []
        for (job, row, draft), choice in chosen:
            if job.sequence.id not in jobs:  # a sibling's trouble ended its request
                continue
            try:
                increment = job.answer.take(choice)
            except PellucidError as error:  # its grammar cannot be followed
                fail(job, error)
                continue
            before = taken.get(job.sequence.id)
            if before is not None:
                increment = before[1].then(increment)
            taken[job.sequence.id] = job, increment
            right = draft and choice.token_id == draft[0]
            if right and increment.finish_reason is None:
                further.append(Row(job, row + 1, draft[1:]))
        chosen = choose(sampler, logits, further, jobs, fail) if further else []
    return [pair for id, pair in taken.items() if id in jobs]


def _draws(rows: list[Row], fail: Fail) -> tuple[list[Row], list[Draw]]:
    """The rows that can draw, and their draws."""
    try:
        return rows, [row.job.answer.draw() for row in rows]
    except PellucidError:  # a grammar cannot be followed: one by one, to see whose
        drawing: list[Row] = []
        draws: list[Draw] = []
        for row in rows:
            try:
                draws.append(row.job.answer.draw())
                drawing.append(row)
            except PellucidError as error:
                fail(row.job, error)
        return drawing, draws
