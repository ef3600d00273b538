"""What changes are worth, as the docs say it: what the results say."""

from __future__ import annotations

import pytest
import what_if_table
from what_if import GUESSES, _chance

RESULT = {
    "model": "m", "processor": "p", "date": "2026-01-01", "rounds": 3, "requests": 9,
    "cores_that_others_took": 0.5,
    "rows": [
        {"change": "c", "predicted": 2.0, "measured": [1.2, 1.6, 1.81], "right": None},
        {"change": "g", "predicted": 1.5, "measured": [1.2, 1.5, 1.81], "right": 0.625},
    ],
}  # fmt: skip


def test_the_page_says_what_the_results_say() -> None:
    page = what_if_table.PAGE.read_text(encoding="utf-8")
    results = what_if_table.read_results(what_if_table.RESULTS)
    assert page == what_if_table.BLOCK.replaced(page, what_if_table.render(results))


def test_each_change_is_there_with_how_far_it_is_off() -> None:
    found = what_if_table.render([RESULT])
    assert "| c | 2.00 times | 1.60 times (1.20 to 1.81) | +25% |" in found
    assert "| g (62% of them right) | 1.50 times | 1.50 times (1.20 to 1.81) | +0% |" in found


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_the_chance_of_a_guess_follows_from_the_share_that_was_right(chance: float) -> None:
    share = sum(chance**k for k in range(1, GUESSES + 1)) / GUESSES
    assert _chance(share) == pytest.approx(chance)
