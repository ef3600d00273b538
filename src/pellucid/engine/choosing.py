"""Choosing: from rows of logits to tokens, and as far along each draft as they agree with it.

By the exact rule a draft changes no choice: each position is chosen as if nothing had been guessed.
By either rule a choice looks at an answer that has taken every token before, so penalties,
grammars, stop strings and limits need no rule of their own, and nothing is ever taken back. A guess
that is right only makes the next row of use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment, TokenChoice
from pellucid.core.plan import Plan
from pellucid.core.record import GuessCheck
from pellucid.engine.answer import Answer
from pellucid.engine.checking import Checks
from pellucid.engine.generation import Generation
from pellucid.sampling import Draw, Sampler
from pellucid.scheduling import Sequence as Running
from pellucid.speculation import rejection
from pellucid.speculation.drafter import Guess

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Job:
    """What becomes of a sequence's logits: an answer's next token."""

    generation: Generation
    answer: Answer
    sequence: Running


class Row(NamedTuple):
    """The row of logits of a job's next token, and what was guessed for it and those after it."""

    job: Job
    row: int
    draft: tuple[Guess, ...]


Chosen = tuple[Row, TokenChoice]
Fail = Callable[[Job, PellucidError], None]


ChooseRows = Callable[[Float32, list[Row], list[Draw]], list[TokenChoice | PellucidError]]
"""A rule: tokens for rows of logits, knowing what was guessed for each."""


def rule(sampler: Sampler, *, rejecting: bool, checks: Checks | None = None) -> ChooseRows:
    """The exact rule: the model's own draw, whatever was guessed. Or rejection sampling. `checks`
    takes note of guesses."""
    return functools.partial(_by_rejection if rejecting else _exactly, sampler, checks)


def _exactly(
    sampler: Sampler,
    checks: Checks | None,
    logits: Float32,
    rows: list[Row],
    draws: list[Draw],
) -> list[TokenChoice | PellucidError]:
    if checks is not None:
        for (job, row, draft), draw in zip(rows, draws, strict=True):
            if draft:
                checks.look(job.sequence.id, logits[row], draw, draft[0])
    return sampler.choose_rows(logits, [row for _, row, _ in rows], draws)


def _by_rejection(
    sampler: Sampler,
    checks: Checks | None,
    logits: Float32,
    rows: list[Row],
    draws: list[Draw],
) -> list[TokenChoice | PellucidError]:
    guesses = [draft[0] if draft else None for _, _, draft in rows]

    def note(place: int, check: GuessCheck) -> None:
        if checks is not None:
            checks.note(rows[place].job.sequence.id, check)

    return rejection.choose_rows(sampler, logits, [row for _, row, _ in rows], draws, guesses, note)


def first_rows(
    plan: Plan, jobs: Mapping[int, Job], drafts: Mapping[int, tuple[Guess, ...]]
) -> list[Row]:
    """Where each job of the plan finds the logits of its next token."""
    rows: list[Row] = []
    row, new = -1, tuple.__new__  # as the scheduler makes spans
    for sequence, _, _, _, n_logits in plan.spans:
        row += n_logits
        job = jobs.get(sequence)
        if job is not None and n_logits:
            draft = drafts.get(sequence, ()) if drafts else ()
            rows.append(new(Row, (job, row - len(draft), draft)))
    return rows


def choose(
    choose_rows: ChooseRows, logits: Float32, rows: list[Row], jobs: Collection[int], fail: Fail
) -> list[Chosen]:
    """A token for each row; `fail` ends jobs that can have none. `jobs` are those alive."""
    drawing, draws = _draws(rows, fail)
    choices = choose_rows(logits, drawing, draws)
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
    choose_rows: ChooseRows,
    logits: Float32,
    chosen: list[Chosen],
    jobs: Collection[int],
    fail: Fail,
) -> list[tuple[Job, Increment]]:
    """Each job takes its token, and goes on while what it takes is what was guessed and the answer
    has not ended. Returns what it all adds, once for each job alive."""
    taken: dict[int, tuple[Job, Increment]] = {}
    while chosen:
        further: list[Row] = []
        for (job, row, draft), choice in chosen:
            id = job.sequence.id
            if id not in jobs:  # a sibling's trouble ended its request
                continue
            try:
                increment = job.answer.take(choice)
            except PellucidError as error:  # its grammar cannot be followed
                fail(job, error)
                continue
            if id in taken:
                increment = taken[id][1].then(increment)
            taken[id] = job, increment
            right = draft and choice.token_id == draft[0].token
            if right and increment.finish_reason is None:
                further.append(Row(job, row + 1, draft[1:]))
        chosen = choose(choose_rows, logits, further, jobs, fail) if further else []
    return [pair for id, pair in taken.items() if id in jobs]


def _draws(rows: list[Row], fail: Fail) -> tuple[list[Row], list[Draw]]:
    """The rows that can draw, and their draws: each is asked once, whoever fails."""
    drawing: list[Row] = []
    draws: list[Draw] = []
    for row in rows:
        try:
            draws.append(row.job.answer.draw())
        except PellucidError as error:  # its grammar cannot be followed
            fail(row.job, error)
        else:
            drawing.append(row)
    return drawing, draws
