"""The README's performance table says what the results say."""

from __future__ import annotations

from typing import Any

import pytest
from marked import read_results
from readme_table import BEGIN, BLOCK, END, README, RESULTS, render

RESULT: dict[str, Any] = {
    "machine": {"processor": "Some Processor", "date": "2026-01-02"},
    "threads": 2,
    "rounds": 3,
    "spinner": False,
    "files": [
        {
            "model": "m.gguf",
            "engines": {"pellucid": {}, "llama.cpp": {}, "openvino": {}},
            "cases": [
                {
                    "name": "decode 1",
                    "tokens_per_second": {
                        "pellucid": [200.0, 210.0, 190.0],
                        "llama.cpp": [100.0, 70.0, 95.0],
                    },
                    "ratios": {"llama.cpp": [2.0, 3.0, 2.0]},
                    "share_of_read": [0.8, 0.7, 0.9],
                    "read_bytes_per_second": [24e9, 24e9, 25e9],
                }
            ],
        }
    ],
    "first_token_seconds": {"pellucid": [0.4, 0.5, 0.6]},
    "whole_engine": [{"batch": 1, "python_share": [0.03, 0.04, 0.05]}],
}


def test_a_result_as_a_table() -> None:
    block = render([RESULT])
    assert "with 2 threads on Some Processor, 2026-01-02" in block
    assert "the median of 3 pairs" in block
    assert "| m.gguf | Pellucid | llama.cpp | ratio | openvino | ratio |" in block
    assert "|---|---|---|---|---|---|" in block
    assert "| decode 1 | 200 | 95.0 | 2.00 (2.00 - 3.00) |  |  |" in block
    assert "80% of the speed of a plain read (24.0 GB/s)" in block
    assert "pellucid 0.50 s" in block
    assert "4.0% at batch 1" in block


def test_only_what_is_between_the_markers_changes() -> None:
    readme = f"# Title\n\n{BEGIN}\nold\n{END}\n\nrest\n"
    new = BLOCK.replaced(readme, "new")
    assert new == f"# Title\n\n{BEGIN}\nnew\n{END}\n\nrest\n"
    assert BLOCK.replaced(new, "new") == new
    with pytest.raises(ValueError, match="has no"):
        BLOCK.replaced("# Title\n", "new")


def test_the_readme_agrees_with_the_results() -> None:
    readme = README.read_text(encoding="utf-8")
    results = read_results(RESULTS)
    assert (BEGIN in readme) == bool(results)
    if results:
        assert readme == BLOCK.replaced(readme, render(results))
