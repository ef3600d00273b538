"""Lowering a plan: which row is which position of whom, and what a scheduler may not ask."""

from __future__ import annotations

import pytest

from pellucid.core.plan import Plan, Span
from pellucid.ops.step import lower


def test_rows_of_two_spans() -> None:
    plan = Plan((Span(7, 3, (10, 11, 12), (4, 0), 2), Span(9, 0, (13,), (2,), 1)), 4)
    step = lower(plan, "cache")
    assert step.tokens.tolist() == [10, 11, 12, 13]
    assert step.positions.tolist() == [3, 4, 5, 0]
    assert step.logit_rows.tolist() == [1, 2, 3]
    assert [(s.first_row, s.length, s.start) for s in step.sequences] == [(0, 3, 3), (3, 1, 0)]
    assert [s.pages for s in step.sequences] == [(4, 0), (2,)]
    assert step.cache == "cache"


@pytest.mark.parametrize(
    "span",
    [
        Span(1, 0, (), (0,)),
        Span(1, 4, (5,), (0,)),  # position 4 lies on a second page
        Span(1, 0, (5, 6), (0,), n_logits=3),
        Span(1, 0, (5, 6), (0,), n_logits=-1),
    ],
)
def test_a_span_that_cannot_run_is_named(span: Span) -> None:
    with pytest.raises(ValueError, match="sequence 1"):
        lower(Plan((span,), 4), None)
