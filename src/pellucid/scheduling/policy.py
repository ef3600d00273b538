"""Policies: who computes how much of a prompt in a step, and when the waiting may start.

A policy shares the positions that decode leaves of a step (the budget) out among sequences that
have a prompt to compute.
"""

from __future__ import annotations

from typing import Protocol

from pellucid.scheduling.admission import Admission, Outcome
from pellucid.scheduling.queue import Lane
from pellucid.scheduling.running import Running
from pellucid.scheduling.sequence import Sequence

Chunks = dict[Sequence, int]


class Policy(Protocol):
    shares_work: bool  # whether sequences wait for what others compute

    def share_out(self, admission: Admission, running: Running, budget: int) -> Chunks:
        """Admit who may start; returns how many positions each is to compute."""


class Continuous:
    """Sequences start and end at any step.

    Half of the budget goes to the shortest prompt, the other half (rounded up) to the oldest; what
    one does not need the other has. So, among equals in priority, while there are places and pages,
    and if decode leaves at least b >= 2 tokens of each step, a prompt of s tokens is computed

    - in at most ceil((s + t) / floor(b / 2)) plans, where t is what is left of prompts no longer
      than it: however many longer prompts there are, they do not count;
    - in at most ceil((s + t) / ceil(b / 2)) plans, where t is what is left of prompts that came
      before it: however many short prompts come, it waits no longer than twice as long as it would
      in the order of arrival.

    With one token left by decode there is nothing to halve: it goes to the oldest.
    """

    shares_work = True

    def share_out(self, admission: Admission, running: Running, budget: int) -> Chunks:
        chunks: Chunks = {}
        if budget < 2:
            _serve(admission, running, Lane.OLDEST, budget, chunks)
            return chunks
        first = admission.turn
        share = budget // 2 if first is Lane.SHORTEST else budget - budget // 2
        left = budget - share + _serve(admission, running, first, share, chunks)
        left = _serve(admission, running, first.other, left, chunks)
        _serve(admission, running, first, left, chunks)
        return chunks


class Static:
    """A batch starts when nothing runs, and ends with its longest answer; whoever comes meanwhile
    waits. First come, first served. Here to be compared with."""

    shares_work = False

    def share_out(self, admission: Admission, running: Running, budget: int) -> Chunks:
        if not running.all:
            while (sequence := admission.queue.first(Lane.OLDEST)) is not None:
                if admission.admit(sequence, Lane.OLDEST) is Outcome.BLOCKED:
                    break
        chunks: Chunks = {}
        for sequence in sorted(running.prefilling.values(), key=Lane.OLDEST.key):
            chunks[sequence] = min(sequence.pending, budget)
            budget -= chunks[sequence]
        return chunks


class Uncached:
    """Every sequence is computed whole, from position 0, in every step it has a part in. The first
    may exceed the budget."""

    shares_work = False

    def __init__(self, static: bool) -> None:
        self._static = static

    def share_out(self, admission: Admission, running: Running, budget: int) -> Chunks:
        chunks: Chunks = {}
        admitting = not (self._static and running.all)
        for sequence in sorted(running.prefilling.values(), key=Lane.OLDEST.key):
            if not chunks or sequence.pending <= budget:
                chunks[sequence] = sequence.pending
                budget -= sequence.pending
        while admitting and budget > 0:
            first = admission.queue.first(Lane.OLDEST)
            if first is None or (chunks and first.pending > budget):
                break
            if admission.admit(first, Lane.OLDEST) is Outcome.BLOCKED:
                break
            chunks[first] = first.pending
            budget -= first.pending
        return chunks


def _serve(admission: Admission, running: Running, lane: Lane, budget: int, chunks: Chunks) -> int:
    """Give out the budget in the order of a lane; returns what is left of it."""
    if budget <= 0:
        return budget
    key = lane.key
    # Who comes to follow another is charged a page, the least that it will not compute: however
    # many share a prefix, a plan looks at few, and nobody behind them waits longer for it.
    to_follow = budget
    started = sorted(running.prefilling.values(), key=key, reverse=True)  # the next one last
    waiting = admission.queue.first(lane)
    while budget > 0 and (started or waiting is not None):
        if waiting is not None and not (started and key(started[-1]) < key(waiting)):
            sequence = waiting
            outcome = admission.admit(sequence, lane)
            waiting = None if outcome is Outcome.BLOCKED else admission.queue.first(lane)
            if outcome is Outcome.FOLLOWS:
                to_follow -= admission.page_size
                waiting = waiting if to_follow > 0 else None
            if outcome is not Outcome.RUNS:
                continue
        else:
            sequence = started.pop()
        given = chunks.get(sequence, 0)
        count = min(sequence.pending - given, budget)
        chunks[sequence] = given + count
        budget -= count
    return budget
