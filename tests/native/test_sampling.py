"""Native sampling against `Sampler`, which defines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid import _native
from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import TokenChoice
from pellucid.core.params import SamplingParams
from pellucid.sampling import Draw, History, Sampler, uniform
from pellucid.sampling.rows import RowsSampler
from tests.python.sampling.forms import MaskForm

VOCABULARY = 700


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_the_same_random_numbers(seed: int, position: int) -> None:
    assert _native.sampling.uniform(seed, position) == uniform(seed, position)


ids = st.integers(0, VOCABULARY - 1)
parameters = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 1e-5, 0.3, 1.0, 1.7]),
        "top_k": st.sampled_from([0, -1, 1, 3, 40, 600, 5000]),
        "top_p": st.sampled_from([0.05, 0.5, 0.77, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 1e-4, 0.05, 0.4, 1.0]),
        "repetition_penalty": st.sampled_from([0.8, 1.0, 1.25]),
        "frequency_penalty": st.sampled_from([0.0, 0.3]),
        "presence_penalty": st.sampled_from([0.0, -0.3]),
        "logit_bias": st.dictionaries(
            ids, st.sampled_from([-100.0, -1.0, 2.5, 20.0, 100.0]), max_size=3
        ),
        "min_tokens": st.integers(0, 6),
        "logprobs": st.sampled_from([None, None, None, 2]),
    }
)


def mask_of(allowed: list[int]) -> np.ndarray:
    mask = np.zeros((VOCABULARY + 31) // 32, np.uint32)
    for token in allowed:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


# No mask, all, none, one token, a few, whole words.
masks = st.one_of(
    st.none(),
    st.just(mask_of(list(range(VOCABULARY)))),
    st.lists(ids, max_size=4).map(mask_of),
    st.lists(ids, min_size=1, max_size=1).map(mask_of),
    st.integers(0, VOCABULARY).map(lambda first: mask_of(list(range(first, VOCABULARY)))),
    st.integers(0, 2**32).map(
        lambda seed: np.random.default_rng(seed).integers(0, 2**32, 22, np.uint32)
    ),
)


def history_of(prompt: list[int], output: list[int]) -> History:
    history = History(prompt)
    for token in output:
        history.append(token)
    return history


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    params = SamplingParams(**draw(parameters))
    history = history_of(draw(st.lists(ids, max_size=9)), draw(st.lists(ids, max_size=9)))
    ends = tuple(draw(st.lists(st.integers(0, VOCABULARY + 5), max_size=2)))
    seed, position = draw(st.integers(-5, 2**63)), draw(st.integers(0, 9999))
    return Draw(params, seed, position, history, ends, draw(masks))


def one_by_one(sampler: Sampler, row: Any, draw: Draw) -> TokenChoice | str:
    try:
        return sampler.choose(row, draw)
    except PellucidError as error:
        return str(error)


@given(
    st.lists(draws(), min_size=1, max_size=6),
    st.integers(0, 2**31),
    st.sampled_from(["spread", "near", "ties", "banned"]),
)
@settings(max_examples=300)
def test_chooses_what_the_definition_does(chosen: list[Draw], seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((8, VOCABULARY)) * 4).astype(np.float32)
    if kind == "near":
        logits *= np.float32(0.02)
    if kind == "ties":
        logits = np.round(logits / 2)
    if kind == "banned":
        logits[:, rng.random(VOCABULARY) < 0.97] = -np.inf
    is_token = rng.random(VOCABULARY) < 0.9
    sampler = Sampler(is_token)
    rows = [int(r) for r in rng.integers(0, 8, len(chosen))]
    together = RowsSampler(is_token).choose_rows(logits, rows, chosen)
    for row, draw, choice in zip(rows, chosen, together, strict=True):
        got = choice if isinstance(choice, TokenChoice) else str(choice)
        assert got == one_by_one(sampler, logits[row], draw)


@given(st.lists(draws(), min_size=1, max_size=6), st.integers(0, 2**31))
@settings(max_examples=200)
def test_draws_that_a_form_checks_are_those_of_the_definition(
    chosen: list[Draw], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((8, VOCABULARY)) * 4).astype(np.float32)
    chosen = [
        draw if draw.mask is None else draw._replace(mask=None, form=MaskForm(draw.mask))
        for draw in chosen
    ]
    rows = [int(r) for r in rng.integers(0, 8, len(chosen))]
    together = RowsSampler().choose_rows(logits, rows, chosen)
    for row, draw, choice in zip(rows, chosen, together, strict=True):
        got = choice if isinstance(choice, TokenChoice) else str(choice)
        assert got == one_by_one(Sampler(), logits[row], draw)


@pytest.mark.parametrize("params", [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.8, top_p=0.9),
    SamplingParams(temperature=1.3, top_k=50),
    SamplingParams(temperature=1.0, min_p=0.02),
], ids=["plain", "top_p", "top_k", "min_p"])  # fmt: skip
def test_a_large_vocabulary(params: SamplingParams) -> None:
    rng = np.random.default_rng(3)
    logits = (rng.standard_normal((4, 151_937)) * 3).astype(np.float32)
    sampler = Sampler()
    draws = [Draw(params, seed, 17, History([])) for seed in range(40)]
    rows = [i % 4 for i in range(40)]
    together = RowsSampler().choose_rows(logits, rows, draws)
    alone = [sampler.choose(logits[row], draw) for row, draw in zip(rows, draws, strict=True)]
    assert together == alone
    assert len({choice.token_id for choice in alone}) > 20


def test_a_mask_of_a_large_vocabulary() -> None:
    rng = np.random.default_rng(4)
    size = 151_937  # a last word that is not full
    logits = (rng.standard_normal((2, size)) * 3).astype(np.float32)
    some = rng.integers(0, 2**32, (size + 31) // 32, np.uint32)
    last = np.zeros_like(some)
    last[-1] = 1  # token 151,936
    draws = [
        Draw(SamplingParams(temperature=t, top_p=p), seed, 17, History([]), (), mask)
        for t, p in ((0.0, 1.0), (1.5, 1.0), (1.0, 0.9))
        for seed in range(5)
        for mask in (some, last, None)
    ]
    rows = [i % 2 for i in range(len(draws))]
    together = RowsSampler().choose_rows(logits, rows, draws)
    sampler = Sampler()
    assert together == [
        sampler.choose(logits[row], draw) for row, draw in zip(rows, draws, strict=True)
    ]
    for draw, choice in zip(draws, together, strict=True):
        assert isinstance(choice, TokenChoice)
        if draw.mask is last:
            assert choice.token_id == 151_936
        elif draw.mask is some:
            assert some[choice.token_id // 32] >> (choice.token_id % 32) & 1


def test_log_probabilities_are_those_before_the_mask() -> None:
    logits = np.random.default_rng(5).standard_normal((1, VOCABULARY)).astype(np.float32)
    free = Draw(SamplingParams(temperature=0.0, logprobs=5), 0, 1, History([]))
    forced = free._replace(mask=mask_of([11]))
    [without], [within] = (RowsSampler().choose_rows(logits, [0], [d]) for d in (free, forced))
    assert isinstance(without, TokenChoice) and isinstance(within, TokenChoice)
    assert within.token_id == 11 and within.top == without.top
    assert within.logprob is not None
    log_total = np.log(np.exp(logits[0].astype(np.float64)).sum())
    assert within.logprob.logprob == pytest.approx(float(logits[0, 11]) - log_total)


def test_scores_that_are_no_distribution_and_bans_of_all() -> None:
    logits = np.zeros((3, VOCABULARY), np.float32)
    logits[0, 5] = np.nan
    logits[1] = -np.inf
    everything = dict.fromkeys(range(VOCABULARY), -100.0)
    draws = [
        Draw(SamplingParams(), 0, 3, History([])),
        Draw(SamplingParams(temperature=1.0), 0, 4, History([])),
        Draw(SamplingParams(logit_bias=everything), 0, 5, History([])),
        Draw(SamplingParams(temperature=0.0), 0, 6, History([])),
    ]
    errors = RowsSampler().choose_rows(logits, [0, 1, 2, 2], draws)
    assert "1 of 700 are NaN or infinite" in str(errors[0])
    assert "every one is -inf" in str(errors[1])
    assert isinstance(errors[2], BadInput) and "no token is left" in str(errors[2])
    assert errors[3] == TokenChoice(0)


def test_the_boundary_names_what_does_not_fit() -> None:
    def draw(row: int, mask: int = -1, end: int = 0) -> tuple[Any, ...]:
        return (row, mask, end, 0.0, 0.0, 0, 1.0, 0, 0)

    def call(**changes: Any) -> None:
        given: dict[str, Any] = {
            "logits": np.zeros((2, 9), np.float32),
            "draws": [draw(0), draw(1)],
            "banned": np.empty(0, np.int32),
            "masks": np.empty((0, 0), np.uint32),
            "edited": np.empty(0, np.int32),
            "edited_scores": np.empty(0),
        }
        _native.sampling.choose(**(given | changes))

    call()
    for name, value, message in (
        ("draws", [draw(0), draw(2)], "row 2 of 2"),
        ("draws", [draw(-1)], "row -1 of 2"),
        ("banned", np.array([9], np.int32), "banned names token 9 of a vocabulary of 9"),
        ("draws", [draw(0, mask=0)], "mask 0 of 0"),
        ("draws", [draw(0, mask=-2)], "mask -2 of 0"),
        ("masks", np.zeros((1, 2), np.uint32), "masks have 2 words for a vocabulary of 9"),
        ("draws", [draw(0, end=1)], "ends of edits are not ascending within edited"),
        ("draws", [draw(0, end=-1)], "ends of edits are not ascending within edited"),
        ("edited_scores", np.zeros(1), "edited and edited_scores differ"),
    ):
        with pytest.raises(ValueError, match=message):
            call(**{name: value})
