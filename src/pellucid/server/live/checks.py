"""Sums that must hold in a record. One that does not is shown with it, never hidden."""

from __future__ import annotations

from typing import Final

from pellucid.core.record import PageMap, RequestRecord, StepRecord
from pellucid.scheduling import Limits

# Seconds by which clocks that are read one after the other may differ.
_CLOCK: Final = 2e-5
# Of a step, what may pass between its phases (locks, the record itself).
_BETWEEN_S: Final = 1e-3
_BETWEEN_SHARE: Final = 0.05
_MOST: Final = 8  # that one record says


def check_page_map(found: PageMap, limits: Limits) -> list[str]:
    """What does not add up in a map of pages, in words."""
    owned = {page for table in found.tables for page in table.pages}
    owned.update(page for _, page in found.copies)
    words = [
        f"page {page} is kept for nobody and owned at once"
        for page in owned.intersection(found.idle)
    ]
    beyond = [page for page in (*owned, *found.idle) if not 0 <= page < limits.n_pages]
    words += [f"page {page} is none of the pool's {limits.n_pages}" for page in beyond]
    lost = set(found.idle).difference(page.page for page in found.cached)
    words += [f"page {page} is kept and is not in the prefix cache" for page in lost]
    return words[:_MOST]


def check_request(record: RequestRecord, chosen: int, told: int | None) -> list[str]:
    """What does not add up in a request that is over: `chosen` tokens were in its steps, and the
    response said that there are `told`; None if it said nothing."""
    counted, found = record.output_tokens, []
    if chosen != counted:
        found.append(f"the steps chose {chosen} tokens and the engine counts {counted}")
    if told is not None and told != counted:
        found.append(f"the response says {told} tokens and the engine counts {counted}")
    return found


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
    if record.stamps is not None and sum(record.stamps) > record.seconds.forward + _CLOCK:
        found.append(
            f"the parts of the forward pass take {1000 * sum(record.stamps):.3f} ms of its "
            f"{1000 * record.seconds.forward:.3f} ms"
        )
    pages = record.pages
    counted = pages.free + pages.cached + pages.owned
    if counted != limits.n_pages:
        found.append(
            f"{pages.free} free, {pages.cached} cached and {pages.owned} owned pages are {counted} "
            f"of the pool's {limits.n_pages}"
        )
    return found
