"""JSON from strangers: bounded, without duplicate keys, and without NaN or Infinity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pellucid.core.errors import FormatError
from pellucid.formats.limits import MAX_JSON_BYTES, MAX_JSON_VALUES


class _RefusedError(Exception):
    """Why a JSON text is not acceptable."""


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object that a whole file holds.

    Raises `FormatError` when the file is missing, too large or not such an object.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise FormatError(path, "file", f"cannot be read: {error.strerror}", "check it") from error
    if len(text) > MAX_JSON_BYTES:
        raise FormatError(path, "file", f"has more than {MAX_JSON_BYTES} bytes")
    return parse_json_object(path, "JSON", text)


def parse_json_object(path: Path, field: str, text: bytes) -> dict[str, Any]:
    """The JSON object in `text`, UTF-8; `field` names it in a `FormatError`."""
    # A cheap upper bound of the number of values, before any of them takes memory.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_JSON_VALUES:
        raise FormatError(path, field, f"has more than {MAX_JSON_VALUES} values")
    try:
        value = json.loads(
            text.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise FormatError(path, f"{field} (byte {error.start})", "is not valid UTF-8") from error
    except _RefusedError as error:
        raise FormatError(path, field, str(error)) from error
    except json.JSONDecodeError as error:
        raise FormatError(path, f"{field} (character {error.pos})", error.msg) from error
    except ValueError as error:  # a number with thousands of digits
        raise FormatError(path, field, "holds a number that is too long") from error
    except RecursionError as error:
        raise FormatError(path, field, "is nested too deeply") from error
    if not isinstance(value, dict):
        raise FormatError(path, field, "is not an object")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise _RefusedError(f"key {key[:200]!r} occurs twice")
        seen.add(key)
    raise AssertionError("a dictionary lost a key that no pair repeats")


def _refuse_constant(name: str) -> Any:
    raise _RefusedError(f"holds {name}, which is not JSON")
