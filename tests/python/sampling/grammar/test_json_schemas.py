"""Whatever is drawn under a schema's masks is valid under it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.structured import StructuredOutputs
from pellucid.sampling.grammar import GrammarCompiler
from pellucid.text import Tokenizer
from tests.python.sampling.grammar.walks import walk

NAMES = st.sampled_from(["a", "b", "c", "é", 'q"\\', "long name", ""])
NUMBERS = st.one_of(
    st.integers(-1000, 1000),
    st.integers(-(2**40), 2**40).map(lambda n: n / 64),  # exact in binary, as the judge reckons
)
TEXTS = st.text(st.sampled_from('ab"\\/\n\t é한👩\x7f\x00\u2028'), max_size=4)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=4,
)


def optional(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def of_type(name: Any, keywords: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    return keywords.map(lambda chosen: {"type": name, **chosen})


NUMERIC = optional(
    minimum=NUMBERS,
    maximum=NUMBERS,
    exclusiveMinimum=NUMBERS,
    exclusiveMaximum=NUMBERS,
    multipleOf=st.sampled_from([1, 2, 3, 7, 0.5, 0.25, 12]),
)
STRING = optional(
    minLength=st.integers(0, 4),
    maxLength=st.integers(0, 6),
    pattern=st.sampled_from(["^a+$", "b", "^[^a]*$", "é|한", r"\d{2}", "^(ab)*c?$", "."]),
    format=st.sampled_from(["date", "uuid", "ipv4", "email"]),
)
LEAVES = st.one_of(
    st.booleans().filter(bool),
    of_type("null", st.just({})),
    of_type("boolean", st.just({})),
    of_type("integer", NUMERIC),
    of_type("number", NUMERIC),
    of_type("string", STRING),
    of_type(["string", "null"], STRING),
    VALUES.map(lambda value: {"const": value}),
    st.lists(VALUES, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    st.just({"$ref": "#/$defs/leaf"}),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = optional(
        items=inner,
        prefixItems=st.lists(inner, min_size=1, max_size=2),
        minItems=st.integers(0, 3),
        maxItems=st.integers(0, 4),
    )
    objects = optional(
        properties=st.dictionaries(NAMES, inner, max_size=3),
        required=st.lists(NAMES, max_size=2, unique=True),
        additionalProperties=inner | st.booleans(),
        patternProperties=st.dictionaries(st.sampled_from(["^x", "y$"]), inner, max_size=1),
        minProperties=st.integers(0, 3),
        maxProperties=st.integers(0, 4),
    )
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        of_type("array", arrays),
        of_type("object", objects),
        of_type(["object", "integer"], objects),
        several.map(lambda parts: {"anyOf": parts}),
        several.map(lambda parts: {"oneOf": parts}),
        several.map(lambda parts: {"allOf": parts}),
        st.tuples(objects, several).map(lambda t: {"type": "object", **t[0], "anyOf": t[1]}),
        st.tuples(NUMERIC, STRING, arrays).map(lambda t: {**t[0], **t[1], **t[2]}),
    )


SCHEMAS = st.recursive(LEAVES, larger, max_leaves=5)


@given(SCHEMAS, LEAVES.filter(lambda leaf: leaf != {"$ref": "#/$defs/leaf"}), st.randoms())
@settings(max_examples=100, deadline=None)
def test_answers_are_valid(
    compiler: GrammarCompiler, tokenizer: Tokenizer, schema: Any, leaf: Any, rng: Random
) -> None:
    whole = {"$defs": {"leaf": leaf}, **schema} if isinstance(schema, dict) else schema
    try:
        grammar = compiler.compile(StructuredOutputs(json=whole))
    except BadInput as error:  # what cannot be satisfied or enforced is said in one line
        assert str(error) and "\n" not in str(error)
        return
    for _ in range(3):
        text, ended = walk(grammar, tokenizer, rng)
        if ended:
            value = json.loads(text.decode())
            jsonschema.Draft202012Validator(whole).validate(value)


KEYWORDS = st.sampled_from(
    "type const enum anyOf oneOf allOf $ref $defs properties required additionalProperties "
    "patternProperties items prefixItems additionalItems minItems maxItems minLength maxLength "
    "pattern format minimum maximum exclusiveMinimum multipleOf minProperties title not".split()
)
SCRAPS = st.recursive(
    VALUES | st.sampled_from(["#", "#/items", "#/$defs/a", "string", "object", "(", "date"]),
    lambda inner: st.one_of(
        st.dictionaries(KEYWORDS, inner, max_size=3), st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(KEYWORDS, SCRAPS, min_size=1, max_size=4), st.randoms())
@settings(max_examples=100, deadline=None)
def test_scraps_of_schemas_are_refused_in_one_line_or_hold(
    compiler: GrammarCompiler, tokenizer: Tokenizer, schema: Any, rng: Random
) -> None:
    try:
        grammar = compiler.compile(StructuredOutputs(json=schema))
    except BadInput as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return
    text, ended = walk(grammar, tokenizer, rng)
    if ended:
        json.loads(text.decode())
