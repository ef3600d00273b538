"""Sums that must hold in a record. One that does not is shown with it, never hidden."""

from __future__ import annotations

from typing import Final

from pellucid.core.record import StepRecord
from pellucid.scheduling import Limits

# Seconds by which clocks that are read one after the other may differ.
_CLOCK: Final = 2e-5
# Of a step, what may pass between its phases (locks, the record itself).
_BETWEEN_S: Final = 1e-3
_BETWEEN_SHARE: Final = 0.05


def check_step(record: StepRecord, limits: Limits) -> list[str]:
    """What does not add up in a step, in words."""
    found = []
    if record.turn is not None:
        phases, step = record.total_seconds, record.turn.step
        rest = step - phases
        if rest < -_CLOCK:
            found.append(
                f"the phases take {1000 * phases:.3f} ms of a step of {1000 * step:.3f} ms"
            )
        elif rest > max(_BETWEEN_S, _BETWEEN_SHARE * step):
            found.append(f"{1000 * rest:.3f} ms of {1000 * step:.3f} ms are in no phase")
    pages = record.pages
    counted = pages.free + pages.cached + pages.owned
    if counted != limits.n_pages:
        found.append(
            f"{pages.free} free, {pages.cached} cached and {pages.owned} owned pages are {counted} "
            f"of the pool's {limits.n_pages}"
        )
    return found
