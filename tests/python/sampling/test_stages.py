"""Bias, penalties and temperature against plain Python."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.params import SamplingParams
from pellucid.sampling import History
from pellucid.sampling.stages import add_bias, apply_temperature, penalise
from tests.python.sampling import oracle

VOCABULARY = 12
ids = st.integers(0, VOCABULARY - 1)
rows = st.lists(
    st.one_of(st.floats(-30, 30), st.just(-math.inf), st.just(0.0)),
    min_size=VOCABULARY,
    max_size=VOCABULARY,
)


def history(prompt: list[int], output: list[int]) -> History:
    made = History(prompt)
    for token in output:
        made.append(token)
    return made


@given(rows, st.dictionaries(ids, st.sampled_from([-100.0, -3.5, 0.0, 2.0, 99.9, 100.0])))
def test_bias(scores: list[float], bias: dict[int, float]) -> None:
    row = np.asarray(scores)
    add_bias(row, bias)
    assert row.tolist() == oracle.bias(scores, bias)


@given(
    rows,
    st.lists(ids, max_size=20),
    st.lists(ids, max_size=20),
    st.sampled_from([0.5, 1.0, 1.3]),
    st.sampled_from([-1.0, 0.0, 0.7]),
    st.sampled_from([-1.0, 0.0, 0.4]),
)
def test_penalties(
    scores: list[float],
    prompt: list[int],
    output: list[int],
    repetition: float,
    frequency: float,
    presence: float,
) -> None:
    params = SamplingParams(
        repetition_penalty=repetition, frequency_penalty=frequency, presence_penalty=presence
    )
    row = np.asarray(scores)
    penalise(row, history(prompt, output), repetition, frequency, presence)
    np.testing.assert_allclose(row, oracle.penalise(scores, params, prompt, output), rtol=1e-15)


def test_repetition_looks_at_the_prompt_and_the_others_do_not() -> None:
    row = np.full(VOCABULARY, 4.0)
    penalise(row, history([1], [2, 2]), 2.0, 0.5, 0.25)
    assert row.tolist() == [4.0, 2.0, 2.0 - 1.0 - 0.25] + [4.0] * 9


def test_penalties_make_negative_scores_more_negative() -> None:
    row = np.full(VOCABULARY, -4.0)
    penalise(row, history([1], []), 2.0, 0.0, 0.0)
    assert row[1] == -8.0


@given(rows.filter(lambda row: max(row) > -math.inf), st.floats(1e-300, 100.0))
def test_temperature_never_overflows(scores: list[float], temperature: float) -> None:
    row = apply_temperature(np.asarray(scores), temperature)
    assert row.max() == 0.0
    assert not np.isnan(row).any()
    at = int(np.argmax(scores))
    assert row[at] == 0.0


def test_history_counts() -> None:
    made = history([3, 3, 1], [5, 1, 5])
    assert made.seen().tolist() == [1, 3, 5]
    assert {int(i): int(n) for i, n in zip(*made.output(), strict=True)} == {5: 2, 1: 1}
    assert made.generated == 3
