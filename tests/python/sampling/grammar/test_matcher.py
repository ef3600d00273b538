"""Masks and states: where an answer may end, going back, and what no grammar allows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.structured import StructuredOutputs
from pellucid.sampling.grammar import GrammarCompiler
from pellucid.text import Tokenizer
from tests.python.sampling.grammar.walks import allowed

A, B = ord("a"), ord("b")
FORMS = [
    StructuredOutputs(regex="(ab|a)*c?"),
    StructuredOutputs(json={"type": "object", "properties": {"a": {"type": "integer"}}}),
    StructuredOutputs(choice=["비빔밥", "비", "naïve"]),
    StructuredOutputs(grammar='start: "(" start ")" | "x"'),
    StructuredOutputs(regex="ab?"),
    StructuredOutputs(regex="cx?y"),
]


def token_of(tokenizer: Tokenizer, text: bytes) -> int:
    return next(t for t in range(tokenizer.vocab_size) if tokenizer.token_bytes(t) == text)


def test_an_end_is_allowed_exactly_where_the_text_is_complete(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    [end] = tokenizer.eos_ids
    a = token_of(tokenizer, b"a")
    matcher = compiler.compile(StructuredOutputs(regex="a{2,3}")).start()
    for complete in (False, False, True):
        assert (end in allowed(matcher)) == complete
        assert end not in allowed(matcher, may_end=False)
        assert not matcher.finished
        matcher.accept(a)
    assert matcher.finished
    assert allowed(matcher) == allowed(matcher, may_end=False) == [end]
    with pytest.raises(BadInput, match="complete before token"):
        matcher.accept(a)


def test_no_control_token_is_text(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    anything = compiler.compile(StructuredOutputs(regex="(?s:.*)")).start()
    inverse = compiler.compile(StructuredOutputs(grammar="start: X\nX: ~/a/")).start()
    for matcher in (anything, inverse):
        assert not set(allowed(matcher)) & (tokenizer.special_ids - set(tokenizer.eos_ids))
    beginning = compiler.compile(
        StructuredOutputs(grammar="start: X\nX: ~/(?s:.*)/ | /ab/")
    ).start()
    assert not set(allowed(beginning)) & tokenizer.special_ids


def test_a_token_that_is_not_allowed_is_refused(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = compiler.compile(StructuredOutputs(regex="ab")).start()
    with pytest.raises(BadInput, match="cannot be followed further"):
        matcher.accept(token_of(tokenizer, b"b"))
    with pytest.raises(BadInput, match="cannot be followed further"):
        matcher.mask()


@pytest.mark.parametrize("asked", FORMS, ids=lambda form: form.kind)
@given(rng=st.randoms())
@settings(max_examples=15, deadline=None)
def test_going_back_is_as_if_nothing_had_come(
    compiler: GrammarCompiler, tokenizer: Tokenizer, asked: StructuredOutputs, rng: Random
) -> None:
    grammar = compiler.compile(asked)
    matcher = grammar.start()
    tokens: list[int] = []
    for _ in range(12):
        if tokens and (matcher.finished or rng.random() < 0.3):
            back = rng.randint(1, len(tokens))
            matcher.rollback(back)
            del tokens[-back:]
        fresh = grammar.start()
        for token in tokens:
            fresh.accept(token)
        assert allowed(matcher) == allowed(fresh)
        assert matcher.finished == fresh.finished
        if not matcher.finished:
            tokens.append(rng.choice(allowed(matcher)))
            matcher.accept(tokens[-1])
    with pytest.raises(ValueError, match="cannot be taken back"):
        matcher.rollback(len(tokens) + 1)


@pytest.fixture(scope="module")
def lacking(tokenizer: Tokenizer) -> Iterator[GrammarCompiler]:
    """Of a model whose vocabulary cannot spell all that grammars allow."""
    spelled = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    compiler = GrammarCompiler(tokenizer, np.array([not set(s) & set(b"by") for s in spelled]))
    yield compiler
    compiler.close()


@pytest.mark.parametrize("of", ["compiler", "lacking"])
@pytest.mark.parametrize("asked", FORMS, ids=lambda form: form.kind)
@given(rng=st.randoms(), ahead=st.booleans())
@settings(max_examples=8, deadline=None)
def test_one_token_is_allowed_where_the_mask_has_its_bit(
    request: pytest.FixtureRequest,
    tokenizer: Tokenizer,
    of: str,
    asked: StructuredOutputs,
    rng: Random,
    ahead: bool,
) -> None:
    grammar = request.getfixturevalue(of).compile(asked)
    matcher, masked = grammar.start(), grammar.start()
    for _ in range(12):
        for may_end in (True, False):
            try:
                bits = set(allowed(masked, may_end))
            except BadInput:  # no token spells what has to follow
                assert of == "lacking"
                bits = set()
            # Ends last: they alone may have the mask computed, which the others would then look at.
            tokens = sorted(range(tokenizer.vocab_size), key=lambda t: t in tokenizer.eos_ids)
            assert {t for t in tokens if matcher.allows(t, may_end)} == bits
        going_on = sorted(bits - set(tokenizer.eos_ids))
        if not going_on:
            break
        token = rng.choice(going_on)
        matcher.accept(token, ahead=ahead)
        masked.accept(token)
        assert matcher.finished == masked.finished
        if matcher.finished:
            break


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FORMS), st.integers(0, 1 << 20))
def test_what_is_forced_comes(
    compiler: GrammarCompiler, tokenizer: Tokenizer, form: StructuredOutputs, seed: int
) -> None:
    """Whatever is chosen, the text goes on with it; and asking for it changes nothing."""
    rng = Random(seed)
    matcher, twin = compiler.compile(form).start(), compiler.compile(form).start()
    text, promised = b"", b""
    for _ in range(12):
        forced = matcher.forced()
        end = len(text) + len(forced)
        assert (text + forced)[: len(promised)] == promised[:end]
        promised = max(promised, text + forced, key=len)
        tokens = allowed(matcher)
        assert tokens == allowed(twin)
        token = rng.choice(tokens)
        if forced:
            assert token not in tokenizer.eos_ids
        matcher.accept(token)
        twin.accept(token)
        if matcher.finished:
            break
        text += tokenizer.token_bytes(token)
        assert text.startswith(promised[: len(text)])


def test_forced_text_after_going_back(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    matcher = compiler.compile(StructuredOutputs(regex="(abc|xyz)!")).start()
    assert matcher.forced() == b""
    matcher.accept(token_of(tokenizer, b"a"))
    assert matcher.forced() == b"bc!"
    matcher.rollback(1)
    matcher.accept(token_of(tokenizer, b"x"))
    assert matcher.forced() == b"yz!"


def test_a_matcher_that_failed_allows_nothing(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = compiler.compile(StructuredOutputs(regex="ab")).start()
    with pytest.raises(BadInput):
        matcher.accept(token_of(tokenizer, b"b"))
    assert not any(matcher.allows(token) for token in range(tokenizer.vocab_size))


def test_matchers_of_one_grammar_are_apart(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = compiler.compile(StructuredOutputs(regex="a{9}"))
    first = allowed(grammar.start())
    one, other = grammar.start(), grammar.start()
    for _ in range(9):
        one.accept(token_of(tokenizer, b"a"))
    assert one.finished and not other.finished
    assert allowed(other) == allowed(grammar.start()) == first


def test_rows_that_are_no_tokens_have_no_bit(tokenizer: Tokenizer) -> None:
    rows = tokenizer.vocab_size + 45
    is_token = np.zeros(rows, np.bool_)
    is_token[: tokenizer.vocab_size] = True
    hole = token_of(tokenizer, b"a")
    is_token[hole] = False
    compiler = GrammarCompiler(tokenizer, is_token)
    mask = compiler.compile(StructuredOutputs(regex="(?s:.*)")).start().mask()
    assert mask.shape == ((rows + 31) // 32,) and mask.dtype == np.uint32
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert not bits[tokenizer.vocab_size :].any() and not bits[hole]
    assert not mask.flags.writeable
    compiler.close()


def test_threads_that_are_gone_are_not_needed(tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(tokenizer, np.ones(tokenizer.vocab_size, np.bool_))
    matcher = compiler.compile(StructuredOutputs(regex="a{3}")).start()
    compiler.close()
    while not matcher.finished:
        matcher.accept(token_of(tokenizer, b"a"))
        assert allowed(matcher)
