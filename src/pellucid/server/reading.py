"""From the bytes of a request to a model of `wire`, or to a refusal that names the field.

A field that is not honoured is refused. A caller who would rather have it ignored says so, with the
header `X-Pellucid-Lenient: true` or the field `lenient: true`; such fields are then left out, and
the response lists them: in `ignored_fields`, and in the header `X-Pellucid-Ignored`. Leniency
covers fields that are not known or not honoured, never values of the wrong kind.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from pellucid.server.errors import ApiError, bad_request
from pellucid.server.wire.strict import NOT_HONOURED

LENIENT_HEADER: Final = "x-pellucid-lenient"
IGNORED_HEADER: Final = "X-Pellucid-Ignored"
_IGNORABLE: Final = frozenset({"extra_forbidden", NOT_HONOURED})
_MAX_IGNORED: Final = 256
_LARGE_ROUNDS: Final = 8  # of dropping fields: a list tells but the first of its own in each
MOST_KEYS_IN_ALL: Final = 100_000

MOST_OBJECTS: Final = 500_000  # and lists; each costs a microsecond or two
MOST_STRINGS: Final = 1_000_000
_LARGE: Final = 1 << 18  # bytes that take some tens of milliseconds to read, at worst

# Names of other servers and times, and what says the same here.
_HINTS: Final = {
    "guided_json": "structured_outputs.json",
    "guided_regex": "structured_outputs.regex",
    "guided_choice": "structured_outputs.choice",
    "guided_grammar": "structured_outputs.grammar",
    "json_schema": "response_format or structured_outputs.json",
    "grammar": "structured_outputs.grammar",
    "regex": "structured_outputs.regex",
    "ebnf": "structured_outputs.grammar",
    "n_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "functions": "tools",
    "function_call": "tool_choice",
    "prompt_logprobs": "echo with logprobs, of /v1/completions",
    "typical_p": "top_p or min_p",
    "prompt_cache_key": "cache_salt",
}

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Read(Generic[Model]):
    """A request, and the paths of its fields that were left out."""

    asked: Model
    ignored: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        if not self.ignored:
            return {}
        listed = ", ".join(self.ignored)
        return {IGNORED_HEADER: listed.encode("ascii", "backslashreplace").decode()[:4000]}

    @property
    def extras(self) -> dict[str, Any]:
        """What the body of the response says of it."""
        return {"ignored_fields": list(self.ignored)} if self.ignored else {}


async def read(request: Request, model: type[Model]) -> Read[Model]:
    """The request's body as a `model`. Raises `ApiError` with status 400, or 413 from below.

    Large ones are read one at a time, with as long a pause after each as it took: ten of them at
    once held up everybody else for as long as they take together.
    """
    text = await request.body()
    if len(text) < _LARGE:
        return _read(request, text, model)
    async with request.app.state.service.large_bodies:
        began = time.monotonic()
        try:
            return _read(request, text, model)
        finally:
            await asyncio.sleep(time.monotonic() - began)


def _read(request: Request, text: bytes, model: type[Model]) -> Read[Model]:
    data = json_object(text, "the body")
    lenient = request.headers.get(LENIENT_HEADER, "").lower() == "true"
    unread: Set[str] = request.app.state.service.unread_names
    lenient = lenient or data.get("lenient") is True
    rounds = _MAX_IGNORED if len(text) < _LARGE else _LARGE_ROUNDS
    return validate(data, model, lenient=lenient, unread=unread, rounds=rounds)


def validate(
    data: dict[str, Any],
    model: type[Model],
    *,
    lenient: bool,
    unread: Set[str] = frozenset(),
    rounds: int = _MAX_IGNORED,
) -> Read[Model]:
    """`data` as a `model`; `data` loses what a lenient caller lets go, in so many `rounds`.
    `unread`: the roles whose names the model's template does not read."""
    ignored: list[str] = []
    while True:
        try:
            return Read(model.model_validate(data, context=unread), tuple(ignored))
        except ValidationError as error:
            problems = error.errors(include_url=False)
        dropped = [p for p in problems if lenient and p["type"] in _IGNORABLE]
        rounds -= 1
        if not dropped or rounds < 0 or len(ignored) + len(dropped) > _MAX_IGNORED:
            raise _refusal(data, problems)
        ignored += _drop(data, dropped)


def json_object(text: bytes, what: str) -> dict[str, Any]:
    """`text`, which messages call `what`, as an object. Raises `ApiError` 400."""
    if not text.strip():
        raise bad_request(f"{what} is empty: send a JSON object", None)
    between, strings = _parts(text, what)
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"{what} is no JSON: {str(error)[:300]}", None) from None
    if not isinstance(data, dict):
        raise bad_request(f"{what} must be a JSON object, not {type(data).__name__}", None)
    names = [s for s, after in zip(strings, between[1:], strict=True) if after.lstrip()[:1] == b":"]
    _refuse_repeated(text, names, what)
    return data


def _parts(text: bytes, what: str) -> tuple[list[bytes], list[bytes]]:
    """Of JSON what is between its strings, and the strings, in which escaped quotes and backslashes
    stand as other escapes. Raises `ApiError` for more of either than are read."""
    if b"\\" in text:
        text = text.replace(rb"\\", rb"\_").replace(rb"\"", rb"\_")
    _at_most(MOST_STRINGS, text.count(b'"') // 2, what, "strings")
    parts = text.split(b'"')
    between = parts[::2]
    n_objects = sum(part.count(b"{") + part.count(b"[") for part in between)
    _at_most(MOST_OBJECTS, n_objects, what, "objects and lists")
    return between, parts[1::2]


def _at_most(most: int, count: int, what: str, of: str) -> None:
    if count > most:
        raise bad_request(f"{what} has {count} {of} and at most {most} are read", None)


def _refuse_repeated(text: bytes, keys: Sequence[bytes], what: str) -> None:
    """A name that an object has twice would have one of its values ignored."""
    if len(set(keys)) == len(keys) and not any(b"\\" in key for key in keys):
        return
    _at_most(MOST_KEYS_IN_ALL, len(keys), what, "names in its objects")
    hook = partial(_once_each, what)
    json.loads(text, object_pairs_hook=hook, parse_int=str, parse_float=str)


def _once_each(what: str, pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise bad_request(f"{what} names {name[:80]!r} twice in one object: give it once", name)
        seen.add(name)


def _drop(data: dict[str, Any], problems: Sequence[ErrorDetails]) -> list[str]:
    """Removes the fields to blame; their paths."""
    dropped = []
    for problem in problems:
        path = _path(data, problem)
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        if path and isinstance(place, dict) and path[-1] in place:
            del place[path[-1]]
            dropped.append(_written(path))
    if not dropped:
        raise _refusal(data, problems)
    return dropped


def _refusal(data: Mapping[str, Any], problems: Sequence[ErrorDetails]) -> ApiError:
    """The problem that says most: one that no leniency could cure, the deepest of those that the
    alternatives of a field have, of the alternative that fits furthest along a list; with what else
    that place might have held."""

    def rank(problem: ErrorDetails) -> tuple[bool, int, int]:
        path = _path(data, problem)
        last = path[-1] if path else 0
        return problem["type"] in _IGNORABLE, -len(path), -last if isinstance(last, int) else 0

    first = min(problems, key=rank)
    path = _path(data, first)
    param = _written(path) or None
    same = [problem for problem in problems if _path(data, problem) == path]
    said = " or ".join(dict.fromkeys(map(_said, same)))
    if first["type"] == "extra_forbidden":
        said = "is not a field that this server honours: leave it out"
    hint = _HINTS.get(str(path[-1])) if path and first["type"] in _IGNORABLE else None
    if hint is not None and hint not in data:
        said += f", or use {hint}"
    return bad_request(f"{param or 'the body'}: {said}", param)


def _said(problem: ErrorDetails) -> str:
    message = problem["msg"]
    given = problem["input"]
    if problem["type"] == "missing":
        return "is required"
    message = message[:1].lower() + message[1:]
    if isinstance(given, str | int | float) and not isinstance(given, bool):
        message += f", not {repr(given)[:80]}"
    return message


def _path(data: Any, problem: ErrorDetails) -> list[str | int]:
    """The steps of a problem's place that exist in the request: names of alternatives of a union
    are no steps. What is missing is one."""
    path: list[str | int] = []
    place = data
    steps = list(problem["loc"])
    for step in steps:
        inside = isinstance(place, list) and isinstance(step, int) and step < len(place)
        if inside or (isinstance(place, dict) and step in place):
            place = place[step]
            path.append(step)
    if problem["type"] == "missing" and steps:
        path.append(steps[-1])
    return path


def _written(path: Sequence[str | int]) -> str:
    return "".join(_steps(path))[:200]


def _steps(path: Sequence[str | int]) -> Iterator[str]:
    for place, step in enumerate(path):
        if isinstance(step, int):
            yield f"[{step}]"
        else:
            yield f".{step}" if place else step


def switch(request: Request, name: str, default: str = "0") -> bool:
    """A query that is 0 or 1. Raises `ApiError`."""
    value = request.query_params.get(name, default)
    if value not in ("0", "1"):
        raise bad_request(f"{name} must be 0 or 1, not {value[:100]!r}", name)
    return value == "1"
