"""What the benchmark of speculation says of a real model is what was done."""

from __future__ import annotations

import pytest

from pellucid import LLM
from pellucid.bench.speculation import ROWS, measure_speculation
from pellucid.bench.tasks import QUOTING


def test_a_quoting_task_is_guessed_and_adds_up() -> None:
    told = {"method": "ngram"}
    with LLM(backend="native", speculative=told, max_model_len=512) as llm:
        tasks = {"edit code": QUOTING["edit code"]}
        report = measure_speculation(llm, told, tasks, 40, lambda _: None)
    [result] = report.results
    assert tuple(report.seconds) == ROWS
    assert report.bound(1) == 1.0
    assert 1 < result.n_tokens <= 40
    assert 0 < result.accepted <= result.guessed
    assert sum(right for _, right in result.places) == result.accepted
    assert result.places[0][0] == result.drafts
    # Steps of the answer: one token each that no draft gave.
    assert result.n_tokens - 1 >= result.accepted
    found = report.to_json()
    assert found["ratio"] == pytest.approx(result.ratio)
    assert found["tasks"][0]["share"] == pytest.approx(result.ratio / result.bound)
