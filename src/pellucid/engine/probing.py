"""Probing: the probes under way, their part of each step, and the rows that they are given."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.core.plan import Plan
from pellucid.engine.in_flight import InFlight
from pellucid.engine.probe import Probe
from pellucid.scheduling import Sequence

Float32 = NDArray[np.float32]


class Probes:
    """By sequence; what wants hidden rows and what wants logits take a forward pass each."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._probes: dict[int, Probe] = {}

    def start(self, probe: Probe) -> None:
        """Queue it. Raises `PromptTooLong` for more tokens than the context holds."""
        sequence = Sequence(
            self._in_flight.next_id(),
            probe.token_ids,
            0,
            all_logits=probe.every,
            salt=probe.salt,
            first_logit=probe.first,
        )
        probe.sequence = sequence
        self._in_flight.add(sequence)
        self._probes[sequence.id] = probe

    def stop(self, probe: Probe) -> None:
        """End it wherever it is."""
        if probe.sequence is not None:
            with self._in_flight.changing:
                self._probes.pop(probe.sequence.id, None)
                self._in_flight.scheduler.finish(probe.sequence)

    def fail_all(self, error: PellucidError) -> None:
        """End every probe with `error`."""
        for probe in list(self._probes.values()):
            self.stop(probe)
            probe.fail(error)

    def mark_started(self, plan: Plan, now: float) -> None:
        """Some positions of those in `plan` are about to be computed."""
        for span in plan.spans if self._probes else ():
            probe = self._probes.get(span.sequence)
            if probe is not None:
                probe.mark_started(now)

    def apart(self, plan: Plan) -> tuple[Plan, Plan | None]:
        """What gives logits, and what gives hidden rows if anything does."""
        hidden = {id for id, probe in self._probes.items() if probe.hidden}
        if not hidden:
            return plan, None
        spans = [span for span in plan.spans if span.sequence in hidden]
        if not spans:
            return plan, None
        others = [span for span in plan.spans if span.sequence not in hidden]
        return Plan(tuple(others), plan.page_size), Plan(tuple(spans), plan.page_size)

    def keep(self, plan: Plan, rows: Float32) -> None:
        """Give the probes in `plan` their rows."""
        if not self._probes:
            return
        row = 0
        for span in plan.spans:
            row += span.n_logits
            probe = self._probes.get(span.sequence)
            if probe is not None:
                probe.keep(span.end, rows[row - span.n_logits : row])
                if probe.finished:
                    self.stop(probe)
