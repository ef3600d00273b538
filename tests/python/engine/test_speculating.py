"""What speculation counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pellucid.core.plan import Plan, Span
from pellucid.core.record import Phases, RoundRecord
from pellucid.engine.speculating import Speculation
from pellucid.speculation.accounts import SHARE
from pellucid.speculation.lengths import Lengths, Wish
from pellucid.speculation.lookup import PromptLookup

SECONDS = Phases(1.0, 4.0, 1.0, 5.0, 1.0, 1.0)  # 4 of them drafting, 9 not
DECODE = Plan((Span(0, 5, (1,), (0,), 1),), 16)
CHECK = Plan((Span(0, 6, (1, 2, 3), (0,), 3),), 16)
MIXED = Plan((Span(0, 6, (1,), (0,), 1), Span(1, 0, (1, 2, 3, 4), (1,), 1)), 16)
ROUND = RoundRecord(0, (2, 3), 1)


@pytest.fixture
def speculation() -> Speculation:
    """It knows that a plain step takes nine seconds."""
    made = Speculation(PromptLookup(4), Lengths(4))
    made.learn(DECODE, (), {0: (1,)}, {}, SECONDS._replace(draft=0.0))
    assert made.counts.seconds_won == 0.0
    return made


def test_what_is_won_is_what_the_tokens_would_have_taken_less_the_step(
    speculation: Speculation,
) -> None:
    speculation.learn(CHECK, (ROUND,), {0: (2, 9)}, {}, SECONDS)
    assert speculation.counts.seconds_won == pytest.approx(2 * 9 - 13)
    assert speculation.counts.guessed_at == [1, 1]
    assert speculation.counts.accepted_at == [1, 0]


def test_what_a_draft_cost_is_on_its_sequences_account(speculation: Speculation) -> None:
    lengths = speculation._lengths
    before = lengths.accounts.balance(0)
    lengths.choose({0: Wish(4)}, 1)
    speculation._asked = {0}
    job = cast("Any", SimpleNamespace(sequence=SimpleNamespace(computed=8, pages=())))
    speculation.learn(CHECK, (ROUND,), {0: (2, 9)}, {0: job}, SECONDS)
    # One guess was right, and two rows are expected to cost a tenth of a step each.
    spent = before + 1 + 2 * SHARE - lengths.accounts.balance(0)
    assert spent == pytest.approx(0.2)


def test_a_look_that_comes_to_nothing_is_paid_for(speculation: Speculation) -> None:
    """After a while, and for no one who has ended meanwhile."""
    lengths = speculation._lengths
    job = cast("Any", SimpleNamespace(sequence=SimpleNamespace(computed=8, pages=())))
    for ended, seconds, paid in (False, 0.27, 0.27 / 9), (False, 100.0, 0.05), (True, 0.27, 0.0):
        before = lengths.accounts.balance(0)
        lengths.begin(1)
        for _ in range(3):
            speculation._looked, speculation._asking = [0], seconds
            jobs = {} if ended else {0: job}
            speculation.learn(DECODE, (), {0: (1,)}, jobs, SECONDS._replace(draft=0.0))
            assert not speculation._looked  # nothing is kept of who may have ended
        speculation._enter()
        spent = before - lengths.accounts.balance(0)
        assert spent == pytest.approx(0.0 if ended else 3 * (paid - SHARE), rel=0.05)
    speculation._looked, speculation._given, speculation._looking = [0, 1], {0: 1}, {0: 1.0}
    speculation.forget(0)
    assert speculation._looked == [1]
    assert not speculation._given and not speculation._looking


class Slow(PromptLookup):
    """What it takes to guess is not known: it has only read a prompt and guessed once."""

    def seconds_each(self, n_sequences: int) -> float | None:  # type: ignore[override]
        return None


@pytest.mark.parametrize(("drafter", "seconds"), [(PromptLookup(4), 13.0), (Slow(4), 9.0)])
def test_what_a_model_takes_to_guess_is_no_part_of_the_check(
    drafter: PromptLookup, seconds: float
) -> None:
    speculation = Speculation(drafter, Lengths(4))
    speculation.learn(DECODE, (), {0: (1,)}, {}, SECONDS._replace(draft=0.0))
    speculation._asked = {0}
    speculation.learn(CHECK, (ROUND,), {0: (2, 9)}, {}, SECONDS)
    times = speculation._lengths.times
    assert times.of(3) == pytest.approx(times.of(1) * min(max(seconds / 9, 1.0), 1.8))


@pytest.mark.parametrize("plan", [DECODE, MIXED])
def test_guesses_that_nobody_checked_are_lost_time(speculation: Speculation, plan: Plan) -> None:
    """A form may cut them all off, and a draft model may only have caught up."""
    speculation._asked = {0}
    speculation.learn(plan, (), {0: (2,)}, {}, SECONDS)
    speculation.learn(plan, (), {0: (2,)}, {}, SECONDS._replace(draft=0.0))
    assert speculation.counts.seconds_won == -4.0
    assert speculation.counts.draft_seconds == 4.0
    assert speculation.counts.drafts == 0


def test_the_last_draft_of_an_answer_teaches_by_its_kind() -> None:
    """It is checked in the step in which the answer ends; only then may its kind be forgotten."""
    lengths = Lengths(4, adaptive=False)
    speculation = Speculation(PromptLookup(4), lengths)
    lengths.choose({0: Wish(4, kind=3)}, 1)
    speculation._asked = {0}
    speculation.forget(0)
    speculation.learn(CHECK, (ROUND,), {0: (2, 9)}, {}, SECONDS)
    assert {kind for kind, _ in lengths.acceptance._common} == {3}
    assert not lengths.acceptance._own
    assert not lengths._kinds
