"""Why a grammar cannot be used, if it cannot: it is compiled and its first mask computed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_PLACE = re.compile(r"^(at )?\d+\(\d+\): (failed to compile JSON schema: )?")
_NOTHING = "it allows no text that this vocabulary can spell"
_OPENINGS = {
    "NoExtensionBias": _NOTHING,
    "ParserTooComplex": "it is too ambiguous to follow",
    "LexerTooComplex": "its regular expressions are too complex to follow",
}


def reason_against(tokenizer: LLTokenizer, grammar: str, limits: LLParserLimits) -> str:
    """ "" for a grammar that may be used."""
    from llguidance import LLMatcher

    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    if not matcher.is_error() and not matcher.is_stopped():
        matcher.compute_bitmask()
    if warnings := matcher.get_grammar_warnings():
        return reason_in(warnings[0])
    return reason_of(matcher)


def reason_of(matcher: LLMatcher) -> str:
    """What stopped a matcher that failed, in one line; "" for one that did not."""
    return reason_in(matcher.get_error()) if matcher.is_error() else ""


def reason_in(message: str) -> str:
    """The line of llguidance's message that says it, without the place in the grammar we made."""
    in_regex = re.search(r"regex parse error:.*\nerror: (.*)", message, re.DOTALL)
    if in_regex is not None:
        return f"regex: {in_regex[1].splitlines()[0]}"
    first = next((line for line in message.splitlines() if line.strip()), "it is invalid")
    if "oneOf constraints" in first:
        return "oneOf is supported where no two of its schemas can match alike: use anyOf"
    if first in _OPENINGS:
        return _OPENINGS[first]
    return _PLACE.sub("", first)[:300].strip()
