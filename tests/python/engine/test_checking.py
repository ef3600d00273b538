"""What is told of guesses while somebody watches: what decided, and nothing while nobody does."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from pellucid import LLM, SamplingParams
from pellucid.core.record import RoundRecord
from pellucid.engine.checking import MOST_CHECKS
from tests.python.engine.guesses import rounds_of
from tests.python.engine.tiny import write_model
from tests.python.engine.traffic import MakeLLM

PROMPT = [ord("a")] * 9
NGRAM = {"method": "ngram", "adaptive": False}


@pytest.fixture(scope="module")
def other_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("draft") / "other.gguf", seed=5)


def answer(llm: LLM, watched: bool = True, **params: float) -> tuple[list[int], list[RoundRecord]]:
    """An answer to `PROMPT`, and the rounds that checked its guesses."""
    if watched:
        llm.engine.ledger.watch(600)
    asked = SamplingParams(max_tokens=24, ignore_eos=True, seed=3, **params)  # type: ignore[arg-type]
    [output] = llm.generate([PROMPT], asked)
    rounds = [one for one in rounds_of(llm) if one.draft]
    assert rounds
    return list(output.outputs[0].token_ids), rounds


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_by_the_exact_rule_p_is_the_models_own(make_llm: MakeLLM, temperature: float) -> None:
    llm = make_llm(speculative=NGRAM)
    tokens, rounds = answer(llm, temperature=temperature)
    steps = [record for record in llm.engine.records if record.tokens]
    scores = llm.logits([*PROMPT, *tokens]).astype(np.float64) / (temperature or 1.0)
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    given = 0
    for record in steps:
        for one in record.rounds:
            assert len(one.checks) == min(one.n_accepted + 1, len(one.draft), MOST_CHECKS)
            for place, (check, guess) in enumerate(zip(one.checks, one.draft, strict=False)):
                row = len(PROMPT) + given + place - 1
                assert check.p == pytest.approx(chances[row, guess], rel=1e-3)
                assert check.q is None and check.drawn is None
        given += sum(map(len, record.tokens.values()))
    assert sum(len(one.checks) for one in rounds)


@pytest.mark.parametrize("drafting", ["ngram", "draft"])
def test_by_rejection_the_number_drawn_decided(
    make_llm: MakeLLM, other_path: Path, drafting: str
) -> None:
    by = {"method": "draft", "model": other_path, "tokens": 4} if drafting == "draft" else NGRAM
    llm = make_llm(speculative={**by, "adaptive": False, "rule": "rejection"})
    _, rounds = answer(llm, temperature=2.0)
    looked = 0
    for one in rounds:
        for place, check in itertools.islice(enumerate(one.checks), one.n_accepted + 1):
            assert check.drawn is not None
            assert (check.q is None) == (drafting == "ngram")
            accepted = check.drawn * (1.0 if check.q is None else check.q) < check.p
            assert accepted == (place < one.n_accepted)
            looked += 1
    assert looked


def test_nothing_is_told_to_nobody_and_no_answer_changes(make_llm: MakeLLM) -> None:
    alone, rounds = answer(make_llm(speculative=NGRAM), watched=False, temperature=0.0)
    assert not any(one.checks for one in rounds)
    seen, rounds = answer(make_llm(speculative=NGRAM), temperature=0.0)
    assert any(one.checks for one in rounds)
    assert seen == alone
