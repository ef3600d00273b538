"""How far a draft model's cache has come."""

from __future__ import annotations

from pellucid.core.plan import Plan, Span
from pellucid.core.record import PageChanges
from pellucid.speculation.filled import Filled

NOTHING = Plan((), 4)


def test_positions_are_there_when_written_and_gone_when_cut() -> None:
    filled = Filled(8, 4)
    pages = (5, 2, 7)
    assert filled.first_missing(pages, 10) == 0
    filled.wrote(pages, 0, 6)
    assert filled.first_missing(pages, 10) == 6
    filled.wrote(pages, 6, 11)
    assert filled.first_missing(pages, 10) == 10
    filled.cut(pages, 7)
    assert filled.first_missing(pages, 10) == 7
    filled.cut(pages, 4)
    assert filled.first_missing(pages, 10) == 4


def test_who_shares_a_page_shares_what_is_there() -> None:
    filled = Filled(8, 4)
    filled.wrote((5, 2), 0, 8)
    assert filled.first_missing((5, 6), 8) == 4
    filled.wrote((5, 6), 4, 6)
    assert filled.first_missing((5, 2), 8) == 8


def test_a_page_taken_anew_holds_nothing() -> None:
    filled = Filled(8, 4)
    filled.wrote((5, 2), 0, 8)
    filled.observe(NOTHING, PageChanges(taken=[2]))
    assert filled.first_missing((5, 2), 8) == 4


def test_a_copy_holds_what_its_sequence_has_computed() -> None:
    filled = Filled(8, 4)
    filled.wrote((5, 2), 0, 8)
    span = Span(1, 6, (9,), (5, 3), 1)  # positions 4 and 5 of page 2 are its own, too
    filled.observe(Plan((span,), 4, ((2, 3),)), PageChanges(taken=[3]))
    assert filled.first_missing((5, 3), 8) == 6
