"""StructuredOutputs: the form an answer must have."""

from __future__ import annotations

import json as _json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pellucid.core.errors import BadInput

MAX_SCHEMA_CHARS = 1 << 20
MAX_REGEX_CHARS = 1 << 16
MAX_GRAMMAR_CHARS = 1 << 18
MAX_CHOICES = 10_000
MAX_CHOICE_CHARS = 1 << 18  # of all choices together
MAX_SCHEMA_DEPTH = 100  # what reads schemas further on stops at 128 levels of JSON

Kind = Literal["json", "regex", "choice", "grammar", "json_object"]


@dataclass(frozen=True, slots=True)
class StructuredOutputs:
    """Exactly one of these is set. Names and meanings as in vLLM.

    json: a JSON schema, as an object, True, or its text; kept as text. regex: what the whole
    answer matches, in the syntax of Rust's regex crate, digits being 0 to 9. choice: the answer is
    one of these strings. grammar: a context-free grammar in Lark's notation. json_object True: any
    JSON object.

    Raises `BadInput` naming the field that is malformed, too large or too deep.
    """

    json: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def __post_init__(self) -> None:
        given = [name for name in _CHECKS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise BadInput(f"structured_outputs: set exactly one of {', '.join(_CHECKS)}: {found}")
        name = given[0]
        object.__setattr__(self, name, _CHECKS[name](getattr(self, name)))

    @property
    def kind(self) -> Kind:
        """The field that is set."""
        return next(name for name in _CHECKS if getattr(self, name) is not None)

    @property
    def size(self) -> int:
        """Characters of what is set."""
        value = getattr(self, self.kind)
        if value is True:
            return 0
        return len(value) if isinstance(value, str) else sum(map(len, value))


def _schema(given: Any) -> str:
    """The schema's text, the same for equal schemas whose keys stand in the same order."""
    if isinstance(given, str):
        given = _parsed(given)
    if not isinstance(given, Mapping | bool):
        raise BadInput(f"json: a schema is an object, true or false, not {type(given).__name__}")
    plain = _Copy().of(given)
    try:
        text = _json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        raise BadInput("json: a number has too many digits: write a smaller one") from None
    return _text("json", text, MAX_SCHEMA_CHARS)


def _parsed(text: str) -> Any:
    _text("json", text, MAX_SCHEMA_CHARS)
    try:
        return _json.loads(text, parse_constant=_no_constant, object_pairs_hook=_distinct)
    except RecursionError:
        raise BadInput(_too_deep()) from None
    except ValueError as error:
        raise BadInput(f"json: this is no JSON: {str(error)[:200]}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:50]!r} stands twice in one object")
        found[key] = value
    return found


class _Copy:
    """Copies JSON values into dicts and lists alone. Depth and size are counted as it goes, so that
    cycles and values shared a million times end too."""

    def __init__(self) -> None:
        self._left = MAX_SCHEMA_CHARS

    def of(self, value: Any, depth: int = 0) -> Any:
        if depth > MAX_SCHEMA_DEPTH:
            raise BadInput(_too_deep())
        self._count(len(value) + 3 if isinstance(value, str) else 2)  # with quotes and a comma
        if isinstance(value, Mapping):
            return {self._key(key): self.of(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(item, depth + 1) for item in value]
        if value is None or isinstance(value, str | bool | int):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        raise BadInput(f"json: {str(value)[:50]} is no JSON value")

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise BadInput(f"json: keys are strings, not {str(key)[:50]}")
        self._count(len(key) + 3)
        return key

    def _count(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise BadInput(f"json has more than the {MAX_SCHEMA_CHARS} characters allowed")


def _too_deep() -> str:
    return f"json: the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels: use $ref and $defs"


def _text(name: str, given: Any, most: int) -> str:
    if not isinstance(given, str) or not given:
        raise BadInput(f"{name} must be a text that is not empty, not {str(given)[:50]!r}")
    if len(given) > most:
        raise BadInput(f"{name} has {len(given)} characters, and {most} are allowed: shorten it")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{name} holds half of a surrogate pair, which is no character") from None
    return given


def _choices(given: Any) -> tuple[str, ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence) or not given:
        raise BadInput(f"choice must be a list of strings, at least one, not {str(given)[:50]!r}")
    if len(given) > MAX_CHOICES:
        raise BadInput(f"choice has {len(given)} strings, and {MAX_CHOICES} are allowed")
    choices = tuple(_text("choice: each", item, MAX_CHOICE_CHARS) for item in given)
    _text("choice: all together", "".join(choices), MAX_CHOICE_CHARS)
    return tuple(dict.fromkeys(choices))


def _true(given: Any) -> bool:
    if given is not True:
        raise BadInput(f"json_object must be True or left out, not {str(given)[:50]!r}")
    return True


_CHECKS: dict[Kind, Any] = {
    "json": _schema,
    "regex": lambda given: _text("regex", given, MAX_REGEX_CHARS),
    "choice": _choices,
    "grammar": lambda given: _text("grammar", given, MAX_GRAMMAR_CHARS),
    "json_object": _true,
}
