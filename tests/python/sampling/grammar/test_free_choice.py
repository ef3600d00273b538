"""Choices without a mask: the same tokens, and few masks."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import PellucidError
from pellucid.core.params import SamplingParams
from pellucid.core.structured import StructuredOutputs
from pellucid.sampling import Draw, History, Sampler
from pellucid.sampling.grammar import FreeChoice, Grammar, GrammarCompiler, Matcher
from pellucid.sampling.grammar import matcher as matchers
from pellucid.text import Tokenizer
from tests.python.sampling.grammar.walks import allowed

GREEDY = SamplingParams(temperature=0)
WORDS = StructuredOutputs(regex="([a-c]{1,3} )*")


def scores(rng: Random, tokenizer: Tokenizer, liked: list[int]) -> np.ndarray:
    """Many are equal, so that ties count; `liked` are likelier than the rest."""
    row = np.array([rng.randrange(4) for _ in range(tokenizer.vocab_size)], np.float32)
    row[liked] += 10
    return row


def followed(
    grammar: Grammar, tokenizer: Tokenizer, rng: Random, liking: float, *, free: bool
) -> list[int]:
    """Twenty greedy tokens; with the chance `liking` the scores are for what is allowed."""
    matcher, sampler, history = grammar.start(), Sampler(), History([])
    choice = FreeChoice(matcher, greedy=True)
    tokens: list[int] = []
    for _ in range(20):
        fine = [t for t in allowed(replayed(grammar, tokens)) if t not in tokenizer.eos_ids]
        row = scores(rng, tokenizer, fine if rng.random() < liking else [])
        mask, form = choice.draw(True) if free else (matcher.mask(), None)
        draw = Draw(GREEDY, 0, len(tokens), history, (), mask, form)
        tokens.append(sampler.choose(row, draw).token_id)
        matcher.accept(tokens[-1], ahead=choice.ahead)
        if matcher.finished:
            break
    return tokens


def replayed(grammar: Grammar, tokens: list[int]) -> Matcher:
    matcher = grammar.start()
    for token in tokens:
        matcher.accept(token, ahead=False)
    return matcher


@given(seed=st.integers(0, 1000), liking=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=15, deadline=None)
def test_the_tokens_are_those_of_masks(
    compiler: GrammarCompiler, tokenizer: Tokenizer, seed: int, liking: float
) -> None:
    grammar = compiler.compile(WORDS)
    free, masked = (
        followed(grammar, tokenizer, Random(seed), liking, free=free) for free in (True, False)
    )
    assert free == masked


def test_where_choices_stand_no_mask_is_computed(
    compiler: GrammarCompiler, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = compiler.compile(WORDS)
    letters = [t for t in range(256) if tokenizer.token_bytes(t) == b"a"]

    def refuse(*_: object) -> None:
        raise PellucidError("a mask was computed")

    monkeypatch.setattr(matchers, "_compute", refuse)
    matcher, row = grammar.start(), scores(Random(1), tokenizer, letters)
    choice = FreeChoice(matcher, greedy=True)
    for position in range(3):
        mask, form = choice.draw(True)
        draw = Draw(GREEDY, 0, position, History([]), (), mask, form)
        token = Sampler().choose(row, draw).token_id
        assert [token] == letters
        matcher.accept(token, ahead=choice.ahead)
    draw = Draw(GREEDY, 0, 3, History([]), (), *choice.draw(True))
    with pytest.raises(PellucidError, match="a mask was computed"):  # four letters are no word
        Sampler().choose(row, draw)


def test_after_refusals_masks_are_computed_ahead_and_then_a_free_choice_is_tried(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    grammar = compiler.compile(StructuredOutputs(regex="a{200}"))
    matcher = grammar.start()
    choice = FreeChoice(matcher, greedy=True)
    [a] = [t for t in range(256) if tokenizer.token_bytes(t) == b"a"]
    tried = []
    for position in range(60):
        _, form = choice.draw(True)
        if form is not None:
            tried.append(position)
            assert not form.allows(a + 1)
        matcher.accept(a, ahead=choice.ahead)
    assert tried == [0, 2, 6, 14, 30, 46]


@pytest.mark.parametrize("ahead", [True, False])
@given(seed=st.integers(0, 1000), liking=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=15, deadline=None)
def test_masks_at_hand_or_not_change_no_drawn_token(
    compiler: GrammarCompiler, tokenizer: Tokenizer, ahead: bool, seed: int, liking: float
) -> None:
    grammar, drawing = compiler.compile(WORDS), SamplingParams(temperature=3.0)

    def drawn(masks: bool | None) -> list[int]:
        """With masks always, never or as it comes computed in advance."""
        rng, matcher, history, tokens = Random(seed), grammar.start(), History([]), []
        choice = FreeChoice(matcher, greedy=False)
        for position in range(20):
            fine = [t for t in allowed(replayed(grammar, tokens)) if t not in tokenizer.eos_ids]
            row = scores(rng, tokenizer, fine if rng.random() < liking else [])
            draw = Draw(drawing, seed, position, history, (), *choice.draw(True))
            tokens.append(Sampler().choose(row, draw).token_id)
            matcher.accept(tokens[-1], ahead=choice.ahead if masks is None else masks)
            if matcher.finished:
                break
        return tokens

    assert drawn(None) == drawn(ahead)


def test_a_lone_refusal_of_a_drawn_token_computes_no_mask_ahead(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    [a] = [t for t in range(256) if tokenizer.token_bytes(t) == b"a"]
    matcher = compiler.compile(StructuredOutputs(regex="a{200}")).start()
    choice = FreeChoice(matcher, greedy=False)
    ahead = []
    for refused in (True, False, True, True, True, False, True):
        _, form = choice.draw(True)
        assert form is choice
        assert choice.allows(a + 1 if refused else a) is not refused
        matcher.accept(a, ahead=choice.ahead)
        ahead.append(choice.ahead)
    assert ahead == [False, False, False, True, True, False, False]
