"""What a form leaves no choice of is guessed for nothing, and the answer stays what it is."""

from __future__ import annotations

from typing import Any

import pytest

from pellucid import LLM, SamplingParams
from tests.python.engine.guesses import rounds_of
from tests.python.engine.traffic import MakeLLM

WAYS: list[dict[str, Any]] = [
    {"method": "ngram"},
    {"method": "early-exit", "layers": 1},
    {"method": "ngram", "rule": "rejection"},
]
FORMS = {
    "choice": ({"choice": ["one way alone"]}, 10),
    "ends in it": ({"regex": "(x|y){3}one way alone"}, 10),
    "in between": ({"regex": "[x-z]{2}one way alone[x-z]{2}"}, 9),
}


@pytest.mark.parametrize("way", WAYS, ids=["ngram", "early-exit", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("form", FORMS)
def test_forced_text_takes_few_steps(
    make_llm: MakeLLM, llm: LLM, way: dict[str, Any], temperature: float, form: str
) -> None:
    wanted, least = FORMS[form]
    params = SamplingParams(
        temperature=temperature, seed=3, max_tokens=40, structured_outputs=wanted
    )
    if way.get("rule") == "rejection":
        params.temperature = 0.0
    guessing = make_llm(speculative={**way, "tokens": 12, "adaptive": False})
    [theirs], [ours] = (one.generate(["hello"], params) for one in (llm, guessing))
    assert ours.outputs == theirs.outputs
    accepted = sum(one.n_accepted for one in rounds_of(guessing))
    assert accepted >= least


def test_a_vocabulary_that_could_write_it_otherwise_may(make_llm: MakeLLM) -> None:
    """A guess is a guess: a bias against the tokens of forced text is followed."""
    params = SamplingParams(
        temperature=0,
        max_tokens=40,
        structured_outputs={"regex": "abababab|ababab"},
        logit_bias={ord("a"): -50.0, ord("b"): 50.0},
    )
    plain, guessing = make_llm(), make_llm(speculative={"method": "ngram", "adaptive": False})
    [theirs], [ours] = (one.generate(["hello"], params) for one in (plain, guessing))
    assert ours.outputs == theirs.outputs
