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

    Half of the budget (rounded up every other time) goes to the oldest prompt, the other half to
    the shortest; what one does not need the other has. So, among equals in priority and while
    there are places and pages:

    - However many long prompts there are, a prompt of s tokens is computed as if the step had half
      of its budget and there were none but the shorter ones: with budget b for prompts in each
      step and t tokens in shorter or equal prompts, after at most ceil((s + t) / floor(b / 2)) + 1
      plans.
    - However many short prompts there are, a prompt is computed no later than first come, first
      served would with half of the budget.
    """

    shares_work = True

    def __init__(self) -> None:
        self._odd = 0

    def share_out(self, admission: Admission, running: Running, budget: int) -> Chunks:
        chunks: Chunks = {}
        self._odd ^= 1
        shortest = (budget + self._odd) // 2
        first = admission.turn
        left = shortest if first is Lane.SHORTEST else budget - shortest
        left = budget - left + _serve(admission, running, first, left, chunks)
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
    started = sorted(running.prefilling.values(), key=key, reverse=True)  # the next one last
    waiting = admission.queue.first(lane)
    while budget > 0 and (started or waiting is not None):
        if waiting is not None and not (started and key(started[-1]) < key(waiting)):
            sequence = waiting
            outcome = admission.admit(sequence, lane)
            waiting = None if outcome is Outcome.BLOCKED else admission.queue.first(lane)
            if outcome is not Outcome.RUNS:
                continue
        else:
            sequence = started.pop()
        given = chunks.get(sequence, 0)
        count = min(sequence.pending - given, budget)
        chunks[sequence] = given + count
        budget -= count
    return budget
