"""Stepping: one step, from the scheduler's plan to what came of it.

    plan -> copies -> drafts -> arrays -> forward pass -> tokens -> apply -> deliver -> record

A step that is interrupted (Ctrl-C) before its plan was applied counts for nothing: the next plan
computes the same again.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges, Phases, RoundRecord
from pellucid.engine.checking import Checks
from pellucid.engine.choosing import ChooseRows, Chosen, choose, first_rows, rule, take
from pellucid.engine.in_flight import InFlight
from pellucid.engine.ledger import Entry, Ledger
from pellucid.engine.passes import Passes
from pellucid.engine.probing import Probes
from pellucid.engine.speculating import Drafts, rounds_of
from pellucid.sampling import Sampler

Float32 = NDArray[np.float32]
Tokens = dict[int, tuple[int, ...]]

_NO_ROWS = np.empty((0, 0), np.float32)
_REASONS = 8  # of those that wait, in a step's record


class Stepper:
    """Runs steps of what is in flight. `sampler` chooses tokens."""

    def __init__(
        self,
        in_flight: InFlight,
        probes: Probes,
        passes: Passes,
        sampler: Sampler,
        ledger: Ledger,
    ) -> None:
        self.sampler = sampler
        self._in_flight = in_flight
        self._probes = probes
        self._passes = passes
        self._ledger = ledger

    def step(self) -> bool:
        """Plan and compute; False if there is nothing to."""
        start = time.monotonic()
        plan = self._plan()
        if plan.spans:
            self._run(plan, start)
        return bool(plan.spans)

    def _plan(self) -> Plan:
        flight = self._in_flight
        guessing = flight.speculation
        with flight.changing:
            if guessing is None:
                return flight.scheduler.plan()
            wanted = guessing.ask(flight.scheduler.decoding, flight.jobs)
            return flight.scheduler.plan(wanted)

    def _run(self, plan: Plan, start: float) -> None:
        flight, ledger, clock = self._in_flight, self._ledger, time.monotonic
        changes, planned = flight.scheduler.changes, clock()
        flight.mark_started(plan, start)
        self._probes.mark_started(plan, start)
        if plan.copies:
            self._passes.copy_pages(plan)
        copied = clock()
        plan, drafts = self._drafted(plan, changes)
        drafted = clock()
        scored, hidden = self._probes.apart(plan)
        step = self._passes.lower(scored)
        lowered = clock()
        if hidden is not None:
            self._probes.keep(hidden, self._passes.hidden(hidden))
        self._passes.stamp(ledger.wants_stamps(start))
        logits = self._passes.logits(step) if scored.spans else _NO_ROWS
        computed = clock()
        self._probes.keep(scored, logits)
        checks = Checks() if drafts and ledger.is_watched(start) else None
        by = self._rule(checks)
        chosen = choose(
            by, logits, first_rows(scored, flight.jobs, drafts), flight.jobs, flight.fail
        )
        sampled = clock()
        tokens, rounds = self._apply(plan, by, logits, chosen, drafts)
        if checks is not None:
            rounds = tuple([one._replace(checks=checks.of(one.sequence)) for one in rounds])
        seconds = Phases(
            planned - start,
            drafted - copied,
            lowered - drafted + copied - planned,
            computed - lowered,
            sampled - computed,
            clock() - sampled,
        )
        if flight.speculation is not None:
            flight.speculation.learn(plan, rounds, tokens, flight.jobs, seconds)
        scheduler = flight.scheduler
        entry = Entry(
            ledger.steps,
            start,
            seconds,
            plan.spans,
            changes,
            tokens,
            scheduler.n_running,
            scheduler.n_waiting,
            scheduler.page_counts(),
            flight.waiting(_REASONS) if ledger.is_watched(start) else (),
            rounds,
            self._passes.stamps() if scored.spans else None,
        )
        ledger.enter(entry)

    def _drafted(self, plan: Plan, changes: PageChanges) -> tuple[Plan, Drafts]:
        flight = self._in_flight
        if flight.speculation is None:
            return plan, {}
        return flight.speculation.draft(plan, changes, flight.jobs)

    def _rule(self, checks: Checks | None) -> ChooseRows:
        guessing = self._in_flight.speculation
        rejecting = guessing is not None and guessing.rejecting
        return rule(self.sampler, rejecting=rejecting, checks=checks)

    def _apply(
        self, plan: Plan, by: ChooseRows, logits: Float32, chosen: list[Chosen], drafts: Drafts
    ) -> tuple[Tokens, tuple[RoundRecord, ...]]:
        """Positions move, answers grow; returns the tokens, and what became of drafts."""
        flight = self._in_flight
        jobs = flight.jobs
        with flight.changing:
            taken = take(by, logits, chosen, jobs, flight.fail)
            tokens = {job.sequence.id: tuple(added.token_ids) for job, added in taken}
            flight.scheduler.apply(plan, tokens)
            rounds = rounds_of(drafts, tokens)
            for one in rounds:
                if one.sequence in jobs:
                    jobs[one.sequence].generation.checked(one)
            flight.deliver(taken)
        return tokens, rounds
