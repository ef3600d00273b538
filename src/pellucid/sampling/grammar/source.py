"""From what was asked to one grammar in the compiler's own notation.

Everything becomes a Lark grammar as llguidance reads it (a rule `start`, `%json` for schemas),
with `no_forcing`: which tokens spell a text is the model's choice among all that do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pellucid.core.errors import BadInput, UnsupportedError
from pellucid.core.structured import MAX_SCHEMA_DEPTH, StructuredOutputs
from pellucid.sampling.grammar.schema import checked

_OPTIONS = '%llguidance {"no_forcing": true}\n'
# Between the parts of a JSON text: one space, or a line end and an indent. Without a bound a model
# that has taken to spaces need never stop.
_WHITESPACE = r"\x20|\n[\x20\t]{0,24}"

_COMMENT, _STRING, _REGEX = r"(?://|\#)[^\n]*", r'"(?:\\.|[^"\\\n])*"', r"/(?:\\.|[^/\\])+/"
_LARK = re.compile(
    rf"(?P<passed>{_COMMENT}|{_STRING}|{_REGEX})|(?P<directive>%[a-z_]+)|(?P<token><[^<>\s]*>)"
    r"|\b(?P<option>temperature|stop)\s*="
)
_DIRECTIVES = ("%ignore", "%if", "%import", "%json", "%regex")
_SPACE = re.compile(r"\s*")


def lark_of(asked: StructuredOutputs) -> str:
    """The grammar of `asked`.

    Raises `BadInput` or `UnsupportedError` for what is malformed or cannot be enforced.
    """
    return _OPTIONS + _WRITERS[asked.kind](getattr(asked, asked.kind))


def _of_schema(text: str) -> str:
    return f"start: {_json_rule(json.loads(text))}"


def _of_regex(regex: str) -> str:
    from llguidance import regex_to_lark

    return f"start: /{regex_to_lark(regex, use_ascii='d')}/"


def _of_choices(choices: tuple[str, ...]) -> str:
    return "start: CHOICE\nCHOICE: " + "\n | ".join(map(_literal, choices))


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _json_rule(schema: Any) -> str:
    kept = checked(schema)
    if kept is False:
        raise BadInput("schema: false allows nothing at all")
    kept = {} if kept is True else kept
    options = {"whitespace_pattern": _WHITESPACE}
    return "%json " + json.dumps({"x-guidance": options, **kept}, ensure_ascii=False)


def _of_lark(grammar: str) -> str:
    """The grammar with its schemas checked, and nothing in it that would be passed over here."""
    return "".join(_pieces(grammar))


def _pieces(grammar: str) -> Iterator[str]:
    at = 0
    while (found := _LARK.search(grammar, at)) is not None:
        yield grammar[at : found.start()]
        at = found.end()
        if found["token"] is not None:
            raise UnsupportedError(
                f"grammar: special tokens ({found['token'][:50]}) are not supported: put text in "
                "quotes"
            )
        if found["option"] is not None:
            raise UnsupportedError(f"grammar: the option {found['option']}= is not supported")
        if found["directive"] == "%json":
            schema, at = _embedded(grammar, at)
            yield _json_rule(schema)
            continue
        if found["directive"] is not None and found["directive"] not in _DIRECTIVES:
            raise UnsupportedError(
                f"grammar: {found['directive'][:50]} is not supported: there are "
                f"{', '.join(_DIRECTIVES)}"
            )
        yield found[0]
    yield grammar[at:]


def _embedded(grammar: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at `at`, and where it ends."""
    found = _SPACE.match(grammar, at)
    begin = at if found is None else found.end()
    try:
        _, end = json.JSONDecoder().raw_decode(grammar, begin)
    except RecursionError:
        raise BadInput(f"grammar: %json is nested deeper than {MAX_SCHEMA_DEPTH} levels") from None
    except ValueError as error:
        raise BadInput(f"grammar: what follows %json is no JSON: {error}") from None
    return json.loads(str(StructuredOutputs(json=grammar[begin:end]).json)), end


_WRITERS: dict[str, Callable[[Any], str]] = {
    "json": _of_schema,
    "regex": _of_regex,
    "choice": _of_choices,
    "grammar": _of_lark,
    "json_object": lambda _: f"start: {_json_rule({'type': 'object'})}",
}
