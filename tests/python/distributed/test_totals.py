"""Several engines' numbers as one's: counts never fall, whoever ends."""

from __future__ import annotations

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


def test_times_add_up_by_their_bounds() -> None:
    totals = Totals()
    totals.see("a", replace(NONE, page_idle=Durations((1, 2), 3.5)))
    totals.see("b", replace(NONE, page_idle=Durations((0, 4), 1.0)))
    assert totals.stats().page_idle == Durations((1, 6), 4.5)
    assert totals.stats().page_lifetimes == Durations()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans()), max_size=40))
def test_no_count_falls(events: list[tuple[str, int, bool]]) -> None:
    totals, counts, last = Totals(), dict.fromkeys("abc", 0), 0
    for name, more, ends in events:
        counts[name] += more
        totals.see(name, replace(NONE, steps=counts[name]))
        if ends:
            totals.only([other for other in "abc" if other != name])
            counts[name] = 0
        now = totals.stats().steps
        assert now >= last
        last = now
