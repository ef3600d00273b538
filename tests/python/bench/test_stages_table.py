"""What stages cost, as the docs say it: what the results say."""

from __future__ import annotations

import stages_table

RESULT = {
    "model": "m", "processor": "p", "date": "2026-01-01", "threads": 4, "stages": 2, "pairs": 5,
    "cores_that_others_took": 0.5,
    "decode": {"unit": "ms a token", "one": 10.04, "staged": 15.0, "ratio": [1.2, 1.5, 1.81]},
    "prefill": {"unit": "ms for 512 tokens", "one": 600.0, "staged": 660.0, "ratio": [1, 1.1, 2]},
}  # fmt: skip


def test_the_page_says_what_the_results_say() -> None:
    page = stages_table.PAGE.read_text(encoding="utf-8")
    results = stages_table.read_results(stages_table.RESULTS)
    assert page == stages_table.BLOCK.replaced(page, stages_table.render(results))


def test_each_figure_is_there_with_its_spread() -> None:
    found = stages_table.render([RESULT])
    assert "| decode, ms a token | 10 | 15 | 1.50 (1.20 to 1.81) |" in found
    assert "| prefill, ms for 512 tokens | 600 | 660 | 1.10 (1.00 to 2.00) |" in found
    assert "4 threads in one process" in found
    assert "Other programs took 0.50 cores" in found
    assert stages_table.render([]) == "Not measured yet."
