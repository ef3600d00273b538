"""Several engines' numbers as one's: counts never fall, whoever ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pellucid.distributed.totals import Totals
from pellucid.engine.stats import Durations, EngineStats

NONE = EngineStats(*(12 * (0,)))


def test_they_add_up_and_what_is_gone_stays_counted() -> None:
    totals = Totals()
    totals.see("a", replace(NONE, steps=5, running_sequences=2, accepted_at=(3, 1)))
    totals.see("b", replace(NONE, steps=7, running_sequences=1, accepted_at=(1,)))
    both = totals.stats()
    assert (both.steps, both.running_sequences, both.accepted_at) == (12, 3, (4, 1))
    totals.only(["b"])
    left = totals.stats()
    assert (left.steps, left.running_sequences, left.accepted_at) == (12, 1, (4, 1))
    totals.see("c", replace(NONE, steps=1))
    assert totals.stats().steps == 13
    totals.see("a", replace(NONE, steps=6))  # it was silent for a while
    assert totals.stats().steps == 14


def test_times_add_up_by_their_bounds() -> None:
    totals = Totals()
    totals.see("a", replace(NONE, page_idle=Durations((1, 2), 3.5)))
    totals.see("b", replace(NONE, page_idle=Durations((0, 4), 1.0)))
    assert totals.stats().page_idle == Durations((1, 6), 4.5)
    assert totals.stats().page_lifetimes == Durations()


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 9), st.booleans(), st.booleans()), max_size=200
    )
)
def test_no_count_falls(events: list[tuple[int, int, bool, bool]]) -> None:
    """Whoever leaves and whoever comes back: every engine is counted once."""
    totals, counts, gone = Totals(), Counter[str](), set[str]()
    for number, more, ends, returns in events:
        name = f"{number}" if returns else f"{number}-{len(gone)}"
        if name in gone:
            continue
        counts[name] += more
        totals.see(name, replace(NONE, steps=counts[name]))
        if ends:
            totals.only([])
            if not returns:
                gone.add(name)
        if len(counts) <= 64:
            assert totals.stats().steps == counts.total()


def test_hundreds_of_engines_stay_counted() -> None:
    totals = Totals()
    for number in range(300):
        totals.see(str(number), replace(NONE, steps=1))
        totals.only([])
        assert totals.stats().steps == number + 1
