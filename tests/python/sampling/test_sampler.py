"""The sampler as a whole: against plain Python, against chance, and at its errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.params import SamplingParams
from pellucid.sampling import Draw, History, Sampler, uniform
from pellucid.sampling.sampler import invert, may_be_checked_after
from tests.python.sampling import oracle
from tests.python.sampling.forms import MaskForm

VOCABULARY = 10
ids = st.integers(0, VOCABULARY - 1)
logits_rows = st.lists(
    st.integers(-24, 24).map(lambda i: i / 4), min_size=VOCABULARY, max_size=VOCABULARY
)


def make_draw(
    params: SamplingParams,
    seed: int = 0,
    position: int = 0,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    end_ids: tuple[int, ...] = (),
) -> Draw:
    history = History(prompt or [])
    for token in output or []:
        history.append(token)
    return Draw(params, seed, position, history, end_ids)


def choose(logits: list[float], draw: Draw, sampler: Sampler | None = None) -> int:
    return (sampler or Sampler()).choose(np.asarray(logits, np.float32), draw).token_id


parameters = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        "top_k": st.sampled_from([0, -1, 1, 3, 8]),
        "top_p": st.sampled_from([0.2, 0.77, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.4]),
        "repetition_penalty": st.sampled_from([0.8, 1.0, 1.25]),
        "frequency_penalty": st.sampled_from([0.0, 0.3]),
        "presence_penalty": st.sampled_from([0.0, -0.3]),
        "logit_bias": st.dictionaries(ids, st.sampled_from([-100.0, -1.0, 2.5]), max_size=3),
        "min_tokens": st.integers(0, 6),
    }
)


@given(
    logits_rows,
    parameters,
    st.integers(0, 1 << 64),
    st.lists(ids, max_size=8),
    st.lists(ids, max_size=8),
    st.sets(ids, max_size=2),
)
def test_as_plain_python(
    logits: list[float],
    fields: dict[str, Any],
    seed: int,
    prompt: list[int],
    output: list[int],
    ends: set[int],
) -> None:
    params = SamplingParams(**fields)
    draw = make_draw(params, seed, 5, prompt, output, tuple(ends))
    banned = ends if len(output) < params.min_tokens else set()
    expected = oracle.pick(logits, params, uniform(seed, 5), prompt, output, banned)
    assert choose(logits, draw) == expected


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    assert choose([1.0, 3.0, 3.0, 2.0], make_draw(SamplingParams(temperature=0))) == 1


def test_a_tiny_temperature_is_nearly_greedy() -> None:
    params = SamplingParams(temperature=1e-9)
    for seed in range(50):
        assert choose([0.0, 1.0, 1.0 - 1e-6], make_draw(params, seed)) == 1


def test_penalties_and_bias_steer_greedy_too() -> None:
    params = SamplingParams(temperature=0, logit_bias={2: 1.5})
    assert choose([0.0, 2.0, 1.0], make_draw(params)) == 2
    params = SamplingParams(temperature=0, repetition_penalty=3.0)
    assert choose([1.0, 2.0], make_draw(params, prompt=[1])) == 0


def test_the_ends_of_bias_ban_and_force() -> None:
    logits = [1000.0, 0.0, -1000.0, 999.0]
    for seed in range(20):
        hot = SamplingParams(temperature=100.0, logit_bias={2: 100})
        assert choose(logits, make_draw(hot, seed)) == 2
        cold = SamplingParams(temperature=0.5, logit_bias={0: -100, 3: -100})
        assert choose(logits, make_draw(cold, seed)) == 1


def test_min_tokens_bans_the_ends_until_enough_are_out() -> None:
    params = SamplingParams(temperature=0, min_tokens=2)
    logits = [0.0, 5.0, 3.0, 4.0]
    assert choose(logits, make_draw(params, output=[0], end_ids=(1, 3))) == 2
    assert choose(logits, make_draw(params, output=[0, 0], end_ids=(1, 3))) == 1


def test_an_end_that_the_model_has_no_row_for_bans_nothing() -> None:
    params = SamplingParams(temperature=0, min_tokens=2)
    assert choose([0.0, 5.0], make_draw(params, end_ids=(7,))) == 1


def test_ids_without_a_token_are_never_chosen_and_never_listed() -> None:
    sampler = Sampler(np.array([True, True, False, True]))
    params = SamplingParams(temperature=0, logprobs=4)
    choice = sampler.choose(np.array([0.0, 1.0, 9.0, 2.0], np.float32), make_draw(params))
    assert choice.token_id == 3
    assert [entry.token_id for entry in choice.top] == [3, 1, 0]
    assert choice.logprob is not None
    assert choice.logprob.rank == 1
    # Their share of the model's distribution stays: this is no renormalisation.
    expected = 2.0 - math.log(sum(math.exp(x) for x in (0.0, 1.0, 9.0, 2.0)))
    assert choice.logprob.logprob == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_that_are_not_numbers_are_an_error(bad: float, temperature: float) -> None:
    with pytest.raises(PellucidError, match=r"position 9.*1 of 3 are NaN or infinite"):
        choose([0.0, bad, 1.0], make_draw(SamplingParams(temperature=temperature), position=9))


def test_a_row_without_any_score_is_an_error() -> None:
    with pytest.raises(PellucidError, match="every one is -inf"):
        choose([-math.inf] * 3, make_draw(SamplingParams()))


def test_nothing_left_to_choose_is_an_error() -> None:
    params = SamplingParams(logit_bias={0: -100, 1: -100})
    with pytest.raises(BadInput, match="no token is left"):
        choose([0.0, 1.0], make_draw(params))


@given(logits_rows, ids, st.integers(0, 20))
def test_logprobs_are_of_the_raw_distribution(logits: list[float], token: int, k: int) -> None:
    params = SamplingParams(
        temperature=0.7, top_k=1, logprobs=k, repetition_penalty=1.5, logit_bias={token: 100}
    )
    choice = Sampler().choose(np.asarray(logits, np.float32), make_draw(params, prompt=[0, 1]))
    total = math.log(sum(math.exp(x) for x in logits))
    ranked = sorted(range(VOCABULARY), key=lambda i: (-logits[i], i))
    assert choice.token_id == token
    assert choice.logprob is not None
    assert choice.logprob.logprob == pytest.approx(logits[token] - total)
    assert choice.logprob.rank == ranked.index(token) + 1
    assert [entry.token_id for entry in choice.top] == ranked[:k]
    assert [entry.rank for entry in choice.top] == list(range(1, min(k, VOCABULARY) + 1))
    for entry in choice.top:
        assert entry.logprob == pytest.approx(logits[entry.token_id] - total)


def test_the_row_is_left_as_it_was() -> None:
    logits = np.arange(5, dtype=np.float32)
    params = SamplingParams(logit_bias={1: 3}, repetition_penalty=2, top_k=2, logprobs=2)
    Sampler().choose(logits, make_draw(params, prompt=[1, 2]))
    assert logits.tolist() == [0, 1, 2, 3, 4]


@given(st.lists(st.sampled_from([0.0, 1e-320, 1.0, 3.0]), min_size=1, max_size=8), st.floats(0, 1))
def test_inverting_never_draws_a_weight_of_zero(weights: list[float], u: float) -> None:
    if not any(weights):
        return
    for chance in (u if u < 1 else 0.5, 0.0, math.nextafter(1.0, 0.0)):
        assert weights[invert(np.asarray(weights), chance)] > 0


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


# Chi-square at 5 degrees of freedom exceeds this once in 100,000 times.
BORDER = 30.86
LOGITS = [0.5, -1.0, 2.0, 0.0, 1.25, -0.5]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.8])
@pytest.mark.parametrize("over", ["positions", "seeds"])
def test_draws_follow_the_distribution(temperature: float, over: str) -> None:
    params = SamplingParams(temperature=temperature)
    draw = make_draw(params, seed=2024)
    counts = np.zeros(len(LOGITS))
    for i in range(6000):
        change = {"position": i} if over == "positions" else {"seed": i}
        counts[choose(LOGITS, draw._replace(**change))] += 1
    weights = np.exp(np.asarray(LOGITS) / temperature)
    assert chi_square(counts, weights / weights.sum()) < BORDER
    # The test has teeth: a temperature 30 % off is noticed.
    wrong = np.exp(np.asarray(LOGITS) / (temperature * 1.3))
    assert chi_square(counts, wrong / wrong.sum()) > BORDER


def test_draws_from_a_nucleus_follow_what_is_left_of_the_distribution() -> None:
    params = SamplingParams(top_k=4, top_p=0.9)
    kept = oracle.keep([x - 2.0 for x in LOGITS], 0.0, 4, 0.9)
    counts = np.zeros(len(LOGITS))
    for position in range(6000):
        counts[choose(LOGITS, make_draw(params, 5, position))] += 1
    assert np.flatnonzero(counts).tolist() == kept
    weights = np.exp(np.asarray(LOGITS)[kept])
    assert chi_square(counts[kept], weights / weights.sum()) < BORDER


def test_draws_that_a_form_checks_follow_the_distribution_of_its_mask() -> None:
    """With a mask from the start, or by it where the free draw is refused: equally often, and
    tokens that are allowed come of the same numbers as without a form."""
    allowed = np.array([0, 1, 3, 4, 5])
    form = MaskForm(np.array([sum(1 << int(token) for token in allowed)], np.uint32))
    free = make_draw(SamplingParams(temperature=0.8), seed=11)
    counts = np.zeros(len(LOGITS))
    n_draws, kept = 6000, 0
    for position in range(n_draws):
        draw = free._replace(position=position)
        token, unchecked = choose(LOGITS, draw._replace(form=form)), choose(LOGITS, draw)
        counts[token] += 1
        if form.allows(unchecked):
            assert token == unchecked
            kept += 1
    assert form.masks == n_draws - kept  # and no more of them
    assert set(np.flatnonzero(counts)) == set(allowed)
    weights = np.exp(np.asarray(LOGITS)[allowed] / 0.8)
    assert chi_square(counts[allowed], weights / weights.sum()) < BORDER
    # The first number, which says where the refused token lay, would not do for the second draw.
    again = np.zeros(len(LOGITS))
    for position in range(n_draws):
        draw = free._replace(position=position)
        token = choose(LOGITS, draw)
        again[token if form.allows(token) else choose(LOGITS, draw._replace(mask=form.mask()))] += 1
    assert chi_square(again[allowed], weights / weights.sum()) > BORDER


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"temperature": 0, "top_p": 0.5}, True),
        ({"repetition_penalty": 1.2, "min_tokens": 3}, True),
        ({"top_p": 0.9}, False),
        ({"top_k": 40}, False),
        ({"min_p": 0.1}, False),
        ({"logit_bias": {1: 100.0}}, False),
        ({"temperature": 0, "logit_bias": {1: 100.0}}, False),
    ],
)
def test_free_choices_are_for_scores_that_depend_on_their_own_token(
    fields: dict[str, Any], may: bool
) -> None:
    assert may_be_checked_after(SamplingParams(**fields)) is may
