"""Every kind of grammar gives what it says; what is hostile or wrong ends in one clear line."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.structured import StructuredOutputs
from pellucid.sampling.grammar import GrammarCompiler, GrammarLimits
from pellucid.sampling.grammar.killable import Killable
from pellucid.text import Tokenizer
from tests.python.sampling.grammar.walks import allowed, walk
from tests.python.text.vocabularies import every_tokenizer

# Compiling it takes more stack than a process has: each rule leads to the next.
CHAIN = "start: r0\n" + "\n".join(f'r{i}: "a" | r{i + 1} "b"' for i in range(9_000))
CRASHING = CHAIN + '\nr9000: "c"'


def compiler_of(tokenizer: Tokenizer, **limits: Any) -> GrammarCompiler:
    is_token = np.ones(tokenizer.vocab_size, np.bool_)
    return GrammarCompiler(tokenizer, is_token, GrammarLimits(**limits))


REGEXES = [
    "a{2,5}",
    r"\d{3}-\d{4}",
    "(yes|no)( maybe)?",
    "[^a]b*",
    "é+|한글?",
    r"a/b\.\n?c",
    "👩🏽‍🚀|x{0,3}",
]


@pytest.mark.parametrize("regex", REGEXES)
def test_a_regex_matches_the_whole_answer(
    compiler: GrammarCompiler, tokenizer: Tokenizer, regex: str
) -> None:
    grammar = compiler.compile(StructuredOutputs(regex=regex))
    for seed in range(20):
        text, ended = walk(grammar, tokenizer, Random(seed))
        assert ended and re.fullmatch(regex, text.decode())


CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\/\x00\x1b\x7f\n👩🏽‍한')
TEXTS = st.text(CHARACTERS, min_size=1, max_size=8)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.randoms())
@settings(max_examples=50, deadline=None)
def test_a_choice_is_one_of_the_choices_byte_for_byte(
    compiler: GrammarCompiler, tokenizer: Tokenizer, choices: list[str], rng: Random
) -> None:
    grammar = compiler.compile(StructuredOutputs(choice=choices))
    text, ended = walk(grammar, tokenizer, rng)
    assert ended and text.decode() in choices


@pytest.mark.parametrize("name", every_tokenizer())
def test_a_literal_in_every_kind_of_vocabulary(name: str) -> None:
    tokenizer = every_tokenizer()[name]
    if not tokenizer.eos_ids:
        return
    compiler = compiler_of(tokenizer)
    literal = "비빔밥 👩🏽‍🚀 naïve ✅"
    spelled = {
        byte for token in range(tokenizer.vocab_size) for byte in tokenizer.token_bytes(token)
    }
    if not set(literal.encode()) <= spelled:
        with pytest.raises(BadInput, match="no text that this vocabulary can spell"):
            compiler.compile(StructuredOutputs(choice=[literal]))
    else:
        grammar = compiler.compile(StructuredOutputs(choice=[literal]))
        for seed in range(5):
            assert walk(grammar, tokenizer, Random(seed)) == (literal.encode(), True)
    compiler.close()


def test_lark(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    source = """
    start: sum  // comments may hold "quotes" and <brackets>
    sum: term ("+" term)*
    term: NUMBER | "(" sum ")" | "<" %json {"enum": ["a", null]} ">"
    NUMBER: /[1-9][0-9]{0,2}/
    """
    grammar = compiler.compile(StructuredOutputs(grammar=source))
    found = [walk(grammar, tokenizer, Random(seed)) for seed in range(30)]
    texts = [text.decode() for text, ended in found if ended]
    assert len(set(texts)) > 3
    for text in texts:
        reckoned = re.sub(r'<("a"|null)>', "1", text)
        assert re.fullmatch(r"[0-9+()]+", reckoned) and eval(reckoned) > 0  # noqa: S307


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"json": {"type": "integer", "minimum": 5, "maximum": 4}}, "minimum .5. is greater"),
        ({"json": {"type": "integer", "minimum": 3, "maximum": 4, "multipleOf": 7}}, "of 7"),
        ({"json": {"type": "string", "minLength": 5, "maxLength": 4}}, "minLength"),
        ({"json": {"type": "array", "uniqueItems": True}}, "'uniqueItems' is not supported"),
        ({"json": {"not": {}}}, "'not' is not supported"),
        ({"json": {"if": {}, "then": {}}}, "'if' is not supported"),
        ({"json": {"properties": {"a": {"minimun": 3}}}}, "at #/properties/a: .*'minimun'"),
        ({"json": {"type": "string", "x-guidance": {"lenient": True}}}, "'x-guidance'"),
        ({"json": {"type": "strin"}}, "#/type is one of"),
        ({"json": {"type": "string", "format": "zip"}}, "format: zip"),
        ({"json": {"type": "string", "pattern": "(?=a)b"}}, "look-around"),
        ({"json": {"const": 2**53 + 1}}, "beyond 2\\^53"),
        ({"json": {"maximum": "3"}}, "#/maximum is a number"),
        ({"json": {"minItems": -1}}, "#/minItems counts, from 0"),
        ({"json": {"required": "a"}}, "#/required is a list of strings"),
        ({"json": {"items": 3}}, "at #/items: a schema is an object"),
        ({"json": {"anyOf": []}}, "#/anyOf is a list of schemas, not empty"),
        ({"json": {"$ref": "#/$defs/no"}}, "leads to no schema"),
        ({"json": {"$ref": "https://example.org/schema"}}, "within the document"),
        ({"json": {"$ref": "#"}}, "no finite text"),
        ({"json": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}}, "no finite text"),
        ({"json": {"type": "array", "items": {"$ref": "#"}, "minItems": 1}}, "no finite text"),
        ({"json": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}, "oneOf"),
        ({"json": {"minProperties": 3}}, "minProperties"),
        ({"json": False}, "false allows nothing"),
        ({"regex": "("}, "unclosed group"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": r"[^\s\S]"}, "no text that this vocabulary can spell"),
        ({"regex": "(" * 20_000 + "a" + ")" * 20_000}, "regex"),
        ({"grammar": "start: other"}, 'unknown name: "other"'),
        ({"grammar": "start: start"}, "no text"),
        ({"grammar": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000}, "too deeply nested"),
        ({"grammar": "start: <|im_end|>"}, "special tokens"),
        ({"grammar": "start: " + "<" * 200_000}, "grammar: "),  # in no quadratic time
        ({"grammar": "start: " + '"' * 199_999}, "grammar: "),
        ({"grammar": "start: " + "%json " * 40_000}, "no JSON"),
        ({"grammar": 'start: x\nx[temperature=0.5]: "a"'}, "temperature= is not supported"),
        ({"grammar": '%llguidance {}\nstart: "a"'}, "%llguidance is not supported"),
        ({"grammar": 'start: %json {"not": {}}'}, "'not' is not supported"),
        ({"grammar": 'start: %json {"a": 1'}, "what follows %json is no JSON"),
        ({"grammar": "start: %json " + '{"items":' * 20_000}, "nested deeper|no JSON"),
    ],
)  # fmt: skip
def test_what_is_refused(compiler: GrammarCompiler, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        compiler.compile(StructuredOutputs(**fields))
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "((((a{100}){100}){100}){100}){100}"},
        {"regex": r"(\w{1000}){1000}"},
        {"regex": "(.*a.{30}){20}"},
        {"regex": "|".join(f"x{i}y" for i in range(5_000))},
        {"json": {"type": "string", "minLength": 10**9}},
        {"json": {"type": "array", "minItems": 10**6}},
        {"json": {"enum": [f"value {i}" for i in range(5_000)]}},
        {"json": {"allOf": [{"anyOf": [{"maxLength": i}, {"minimum": i}]} for i in range(12)]}},
        {"grammar": 'start: x\nx: x x | "a" | x x x'},
        {"choice": [f"choice {i}" for i in range(10_000)]},
    ],
    ids=lambda fields: str(fields)[:30],
)
def test_what_grows_without_measure_is_followed_or_refused(
    compiler: GrammarCompiler, tokenizer: Tokenizer, fields: dict[str, Any]
) -> None:
    try:
        grammar = compiler.compile(StructuredOutputs(**fields))
        walk(grammar, tokenizer, Random(0), most=30)
    except BadInput as error:
        assert "\n" not in str(error)


def test_a_grammar_that_crashes_its_process_crashes_no_other(tokenizer: Tokenizer) -> None:
    compiler = compiler_of(tokenizer)
    with pytest.raises(BadInput, match="grammar: it is too deep or too large"):
        compiler.compile(StructuredOutputs(grammar=CRASHING))
    grammar = compiler.compile(StructuredOutputs(regex="ab"))
    assert walk(grammar, tokenizer, Random(0)) == (b"ab", True)
    compiler.close()


def test_a_grammar_that_takes_too_long_is_cut_off(tokenizer: Tokenizer) -> None:
    compiler = compiler_of(tokenizer, seconds=0.0)
    with pytest.raises(BadInput, match="more than 0 seconds"):
        compiler.compile(StructuredOutputs(regex="ab"))
    compiler.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the bound is on the address space")
def test_a_grammar_that_takes_too_much_memory_is_cut_off(tokenizer: Tokenizer) -> None:
    compiler = compiler_of(tokenizer, memory=6 << 20)
    choices = [f"{i} {i * i} {i**3}" for i in range(9_000)]
    with pytest.raises(BadInput, match="too large to be compiled in the memory allowed"):
        compiler.compile(StructuredOutputs(choice=choices))
    compiler.close()


def test_a_process_that_was_killed_starts_again(tokenizer: Tokenizer) -> None:
    compiler = compiler_of(tokenizer)
    compiler.compile(StructuredOutputs(regex="ab"))
    [first] = compiler._trials.pids
    os.kill(first, signal.SIGKILL)
    compiler.compile(StructuredOutputs(regex="cd"))
    [second] = compiler._trials.pids
    assert second != first
    compiler.close()
    compiler.close()
    compiler.compile(StructuredOutputs(regex="ef"))  # closing ends what runs, and no more
    compiler.close()


def test_a_slow_grammar_holds_up_no_other(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = compiler_of(tokenizer)
    begun, may_end = threading.Event(), threading.Event()
    real = Killable.reason_against

    def slow(self: Killable, grammar: str) -> str:
        if "zz" in grammar:
            begun.set()
            assert may_end.wait(120)
        return real(self, grammar)

    monkeypatch.setattr(Killable, "reason_against", slow)
    with ThreadPoolExecutor(2) as threads:
        slow_ones = [
            threads.submit(compiler.compile, StructuredOutputs(regex="zz")) for _ in range(2)
        ]
        assert begun.wait(120)
        quick = compiler.compile(StructuredOutputs(regex="ab"))
        assert not any(one.done() for one in slow_ones)
        assert len(compiler._trials.pids) == 2
        may_end.set()
        first, second = (one.result() for one in slow_ones)
    assert first is second and first is not quick
    compiler.close()


def test_what_fails_for_one_is_tried_again_by_the_next(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = compiler_of(tokenizer)

    def fail(*_: object) -> str:
        raise PellucidError("no process")

    monkeypatch.setattr(Killable, "reason_against", fail)
    with pytest.raises(PellucidError, match="no process"):
        compiler.compile(StructuredOutputs(regex="ab"))
    monkeypatch.undo()
    assert compiler.compile(StructuredOutputs(regex="ab"))
    compiler.close()


def test_equal_requests_share_one_grammar_and_few_are_kept(tokenizer: Tokenizer) -> None:
    compiler = compiler_of(tokenizer, cached=2)
    first = compiler.compile(StructuredOutputs(regex="a"))
    assert compiler.compile(StructuredOutputs(regex="a")) is first
    compiler.compile(StructuredOutputs(regex="b"))
    compiler.compile(StructuredOutputs(regex="c"))
    assert len(compiler._kept) == 2
    assert compiler._kept_chars == 2
    again = compiler.compile(StructuredOutputs(regex="a"))
    assert again is not first
    assert allowed(again.start()) == allowed(first.start())
    compiler.close()


def test_a_vocabulary_without_an_end_is_refused(tokenizer: Tokenizer) -> None:
    end = min(tokenizer.eos_ids)
    compiler = GrammarCompiler(tokenizer, np.ones(end, np.bool_))  # the model has no such row
    with pytest.raises(BadInput, match="no token that ends an answer"):
        compiler.compile(StructuredOutputs(regex="a"))
