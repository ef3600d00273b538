"""The table of docs/plan.md is what the results say."""

from __future__ import annotations

from typing import Any

import plan_table
import pytest


def row(what: str, predicted: float, measured: float, allowed: float) -> dict[str, Any]:
    off = predicted / measured - 1
    return {
        "what": what,
        "predicted": predicted,
        "measured": measured,
        "off": off,
        "allowed": allowed,
        "within": abs(off) <= allowed,
        "scatter": 0.1 * predicted,
        "known_pace": 1.05 * measured,
        "known_pace_off": 0.05,
    }


RESULT = {
    "model_title": "a model",
    "places": 16,
    "prompt_tokens": "100",
    "output_tokens": "16-48",
    "machine": {
        "processor": "a processor",
        "threads": 2,
        "cores": 2,
        "date": "2026-01-02",
        "cores_that_others_took": {"calibration": 0.1, "light": 0.2},
    },
    "calibration": {"error": {"step": 0.061, "phase": 0.04, "worst_phase": 0.2}},
    "pace": {"calibration 1": 0.9, "calibration 2": 1.1, "light 1": 1.2, "light 2": 1.2},
    "loads": [
        {
            "load": "light",
            "requests_per_second": 2.5,
            "rows": [row("tokens/s", 95, 100, 0.1), row("ttft p50", 0.2, 0.1, 0.15)],
        }
    ],
}


def test_the_page_says_what_the_results_say() -> None:
    page = plan_table.PAGE.read_text(encoding="utf-8")
    results = plan_table.read_results(plan_table.RESULTS)
    assert page == plan_table.BLOCK.replaced(page, plan_table.render(results))


def test_what_is_off_is_said() -> None:
    found = plan_table.render([RESULT])
    assert "| light: 2.50 requests/s | tokens/s | 95 ±10% | 100 | -5% | 10% | yes | +5% |" in found
    assert "|  | ttft p50 | 200 ms ±10% | 100 ms | +100% | 15% | **no** | +5% |" in found
    assert "1 of 2 figures are within" in found
    assert "with the pace as it was 2 of 2" in found
    assert "0.90 to 1.10 times" in found
    assert "1.20 (light)" in found
    assert "others took 0.10 to 0.20" in found


def test_a_page_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        plan_table.BLOCK.replaced("nothing", "")
