"""Speculation never shows: every answer is what it is without, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, BadInput, SamplingParams
from pellucid.core.record import RoundRecord
from pellucid.engine.choosing import Row
from pellucid.sampling import uniform
from pellucid.speculation import rejection
from tests.python.engine.guesses import (
    LETTERS,
    check_plain,
    remembered,
    requests,
    rounds_of,
    with_oracle,
)
from tests.python.engine.histories import History, check, crowded, histories
from tests.python.engine.tiny import CONTEXT, LAYERS, write_model
from tests.python.engine.traffic import MakeLLM

NGRAM = {"method": "ngram", "tokens": 6, "adaptive": False}
DRAFT = {"method": "draft", "tokens": 3, "adaptive": False}
EARLY = {"method": "early-exit", "layers": 1, "tokens": 3, "adaptive": False}


@pytest.fixture(scope="module")
def naive(make_llm: MakeLLM) -> LLM:
    return make_llm(kv_cache=False, max_num_seqs=1, page_size=CONTEXT)


@pytest.fixture(scope="module")
def other_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same vocabulary, other weights."""
    return write_model(tmp_path_factory.mktemp("other") / "other.gguf", seed=1)


@pytest.fixture(scope="module")
def guessing(make_llm: MakeLLM, tiny_path: Path) -> LLM:
    return make_llm(speculative={**DRAFT, "model": tiny_path}, page_size=5)


@pytest.fixture(scope="module")
def looking_up(make_llm: MakeLLM) -> LLM:
    return make_llm(speculative=NGRAM, page_size=5)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((1, 3, 5, 16)), st.integers(1, 7), st.integers(2, 6))
def test_nothing_of_a_history_with_drafts_shows(
    make_llm: MakeLLM, naive: LLM, history: History, most: int, wrong_at: int
) -> None:
    check(with_oracle(make_llm, naive, history, most, wrong_at), naive, history)


def test_a_crowded_history_drafts_preempts_and_shares(make_llm: MakeLLM, naive: LLM) -> None:
    history = crowded(16)
    llm = check(with_oracle(make_llm, naive, history, 5, 4), naive, history)
    stats = llm.engine.stats()
    assert stats.preemptions
    assert stats.prefix_hits
    assert not remembered(llm)
    rounds = rounds_of(llm)
    assert any(0 < one.n_accepted < len(one.draft) for one in rounds)
    assert any(one.n_accepted == len(one.draft) for one in rounds)
    assert sum(one.n_accepted for one in rounds) > 20


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((1, 3, 5, 16), forms=False), st.integers(1, 7))
def test_the_model_itself_as_its_draft_guesses_all_that_comes(
    make_llm: MakeLLM, naive: LLM, tiny_path: Path, history: History, tokens: int
) -> None:
    """Whatever pages went through, its own cache holds what it should, or a guess would be off."""
    speculative = {**DRAFT, "model": tiny_path, "tokens": tokens}
    llm = check(make_llm, naive, history, caches=2, speculative=speculative)
    assert all(one.n_accepted == len(one.draft) for one in rounds_of(llm))


def test_the_model_itself_as_its_draft_in_a_crowd(
    make_llm: MakeLLM, naive: LLM, tiny_path: Path
) -> None:
    speculative = {**DRAFT, "model": tiny_path, "tokens": 4}
    llm = check(make_llm, naive, crowded(5), caches=2, speculative=speculative)
    assert llm.engine.stats().preemptions
    assert llm.engine.stats().prefix_hits
    assert len(rounds_of(llm)) > 10
    assert not remembered(llm)
    assert all(one.n_accepted == len(one.draft) for one in rounds_of(llm))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((1, 3, 5, 16)), st.booleans())
def test_another_model_or_the_first_layers_change_no_answer(
    make_llm: MakeLLM, naive: LLM, other_path: Path, history: History, early: bool
) -> None:
    speculative = EARLY if early else {**DRAFT, "model": other_path}
    check(make_llm, naive, history, caches=1 if early else 2, speculative=speculative)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories((3, 16)), st.integers(100, 259), st.booleans())
def test_a_draft_with_a_short_head_changes_no_answer(
    make_llm: MakeLLM, naive: LLM, other_path: Path, history: History, rows: int, adaptive: bool
) -> None:
    speculative = {**DRAFT, "model": other_path, "vocabulary": rows, "adaptive": adaptive}
    check(make_llm, naive, history, caches=2, speculative=speculative)


def test_the_whole_head_guesses_what_a_short_one_lacks(make_llm: MakeLLM, tiny_path: Path) -> None:
    """The model as its own draft: where the text is beyond the head, nothing but the whole head
    guesses it, and all of it."""
    asked = SamplingParams(temperature=0.8, seed=3, max_tokens=40)
    speculative = {**DRAFT, "model": tiny_path, "tokens": 4}
    whole = make_llm(speculative=speculative)
    [expected] = whole.generate(["zyxzyx" * 4], asked)
    short = make_llm(speculative={**speculative, "vocabulary": 8})
    [output] = short.generate(["zyxzyx" * 4], asked)
    assert output.outputs == expected.outputs
    assert rounds_of(short) == rounds_of(whole)


def test_a_draft_ends_where_its_model_is_not_sure(
    make_llm: MakeLLM, other_path: Path, llm: LLM
) -> None:
    """Adaptive, a draft of another model's flat guesses is cut short; the answer is the same."""
    asked = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    drafting = make_llm(speculative={"method": "draft", "model": other_path, "tokens": 6})
    [ours], [plain] = (one.generate(["hello"], asked) for one in (drafting, llm))
    assert ours.outputs == plain.outputs
    assert all(len(one.draft) < 6 for one in rounds_of(drafting))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests())
def test_all_that_a_choice_depends_on_with_a_model_that_guesses(
    guessing: LLM, llm: LLM, asked: list[tuple[list[int], SamplingParams]]
) -> None:
    check_plain(guessing, llm, asked)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests())
def test_looking_up_changes_no_answer(
    looking_up: LLM, llm: LLM, asked: list[tuple[list[int], SamplingParams]]
) -> None:
    check_plain(looking_up, llm, asked)


def test_a_text_that_repeats_itself_takes_fewer_steps(make_llm: MakeLLM) -> None:
    llm = make_llm(speculative=NGRAM)
    bias = {ord("a"): 100.0}
    params = SamplingParams(temperature=0, max_tokens=29, logit_bias=bias, ignore_eos=True)
    [output] = llm.generate([[ord("a")] * 3], params)
    assert output.outputs[0].token_ids == [ord("a")] * 29
    assert llm.engine.stats().steps == 1 + 4  # the prompt and a token, then seven tokens a step
    assert [(len(one.draft), one.n_accepted) for one in rounds_of(llm)] == [(6, 6)] * 4
    assert llm.engine.stats().tokens_generated == 29


def test_who_opts_out_has_no_drafts(make_llm: MakeLLM) -> None:
    llm = make_llm(speculative=NGRAM)
    params = SamplingParams(
        temperature=0, max_tokens=9, logit_bias=LETTERS, ignore_eos=True, speculative=False
    )
    llm.generate([[ord("a")] * 9], params)
    assert not rounds_of(llm)


def test_rejection_keeps_the_distribution_of_answers(
    make_llm: MakeLLM, llm: LLM, other_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chi-square of answers of three tokens against their chances by the model's own scores."""
    letters = [ord(letter) for letter in "abc"]
    params = SamplingParams(
        n=1024,
        max_tokens=3,
        seed=11,
        temperature=1.3,
        ignore_eos=True,
        logit_bias=dict.fromkeys(letters, 100.0),
    )
    prompt = [7, 8, 9]
    chances = chances_of(llm, prompt, letters, 1.3)
    drafting = {**DRAFT, "model": other_path, "rule": "rejection"}

    rounds: list[RoundRecord] = []

    def statistic() -> float:
        engine = make_llm(speculative=drafting)
        [output] = engine.generate([prompt], params)
        counts = Counter(tuple(answer.token_ids) for answer in output.outputs)
        rounds.extend(rounds_of(engine))
        assert counts.keys() <= chances.keys()
        return sum((counts[x] - 1024 * p) ** 2 / (1024 * p) for x, p in chances.items())

    assert statistic() < 70  # 26 degrees of freedom: exceeded once in 200,000
    assert any(one.n_accepted < len(one.draft) for one in rounds)
    assert any(one.n_accepted for one in rounds)
    monkeypatch.setattr(
        rejection,
        "uniform",
        lambda seed, at, use="draw": -1.0 if use == "accept" else uniform(seed, at, use),
    )
    assert statistic() > 140


def chances_of(
    llm: LLM, prompt: list[int], letters: list[int], temperature: float
) -> dict[tuple[int, ...], float]:
    chances: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer: dict[tuple[int, ...], float] = {}
        for answer, chance in chances.items():
            scores = llm.logits([*prompt, *answer])[-1][letters].astype(np.float64) / temperature
            weights = np.exp(scores - scores.max())
            for letter, share in zip(letters, weights / weights.sum(), strict=True):
                longer[(*answer, letter)] = chance * float(share)
        chances = longer
    return chances


def test_greedy_answers_are_the_same_by_rejection(
    make_llm: MakeLLM, llm: LLM, other_path: Path
) -> None:
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    for speculative in (
        {**DRAFT, "model": other_path, "rule": "rejection"},
        {**NGRAM, "rule": "rejection"},
    ):
        other = make_llm(speculative=speculative)
        prompts = ["hello there", "aaaaaa", "abababab"]
        for ours, theirs in zip(
            other.generate(prompts, params), llm.generate(prompts, params), strict=True
        ):
            assert ours.outputs == theirs.outputs


def _believes_every_guess(patch: pytest.MonkeyPatch) -> None:
    from pellucid.engine import choosing

    real = choosing.choose

    def choose(sampler: Any, logits: Any, rows: list[Row], jobs: Any, fail: Any) -> Any:
        chosen = real(sampler, logits, rows, jobs, fail)
        for row, choice in chosen:
            if row.draft:
                choice.token_id = row.draft[0].token
        return chosen

    patch.setattr("pellucid.engine.stepping.choose", choose)
    patch.setattr(choosing, "choose", choose)


def _goes_on_from_another_token(patch: pytest.MonkeyPatch) -> None:
    from pellucid.scheduling import Scheduler

    real = Scheduler._accept

    def accept(self: Any, sequence: Any, start: int, chosen: Sequence[int]) -> None:
        real(self, sequence, start, (*chosen[:-1], 0))

    patch.setattr(Scheduler, "_accept", accept)


@pytest.mark.parametrize("fault", [_believes_every_guess, _goes_on_from_another_token])
def test_the_check_has_teeth(
    make_llm: MakeLLM, naive: LLM, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    history = crowded(5)
    make = with_oracle(make_llm, naive, history, 5, 4)
    fault(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        check(make, naive, history)


@pytest.mark.parametrize(
    ("speculative", "named"),
    [
        ("ngram", "must be a mapping"),
        ({}, "method is missing"),
        ({"method": "guess"}, "method must be one of"),
        ({"method": "ngram", "rule": "lucky"}, "rule must be one of"),
        ({"method": "ngram", "tokens": 0}, "tokens must be from 1"),
        ({"method": "ngram", "tokens": 1000}, "tokens must be from 1"),
        ({"method": "ngram", "tokens": True}, "tokens must be from 1"),
        ({"method": "ngram", "model": "x"}, "takes no model"),
        ({"method": "draft"}, "needs a model"),
        ({"method": "ngram", "layers": 1}, "layers are for early-exit"),
        ({"method": "ngram", "length": 3}, "has no 'length'"),
    ],
)
def test_what_cannot_be_is_refused(make_llm: MakeLLM, speculative: Any, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        make_llm(speculative=speculative)


def test_drafts_that_cannot_serve_are_refused(
    make_llm: MakeLLM, tiny_path: Path, tmp_path: Path
) -> None:
    words = write_model(tmp_path / "words.gguf", token_of_a="@@")
    with pytest.raises(BadInput, match=r"another vocabulary: token 97 is '@@' there and 'a' here"):
        make_llm(speculative={**DRAFT, "model": words})
    large = write_model(tmp_path / "large.gguf", layers=LAYERS + 1)
    with pytest.raises(BadInput, match="a draft is smaller"):
        make_llm(speculative={**DRAFT, "model": large})
    with pytest.raises(BadInput, match=f"layers must be from 1 to {LAYERS - 1}"):
        make_llm(speculative={**EARLY, "layers": LAYERS})
    with pytest.raises(BadInput, match="no-such"):
        make_llm(speculative={**DRAFT, "model": str(tmp_path / "no-such.gguf")}, offline=True)
    small = write_model(tmp_path / "small.gguf", layers=1)
    assert make_llm(speculative={**DRAFT, "model": small}).generate("hello")


def test_the_naive_loop_has_no_room_for_drafts(make_llm: MakeLLM) -> None:
    with pytest.raises(BadInput, match="KV cache"):
        make_llm(speculative=NGRAM, kv_cache=False)
