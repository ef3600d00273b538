"""JSON from strangers: bounded, without duplicate keys, and without NaN or Infinity."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pellucid.core.errors import FormatError
from pellucid.formats.limits import MAX_JSON_BYTES, MAX_JSON_LISTS, MAX_JSON_VALUES
from pellucid.formats.mapped import open_regular
from pellucid.formats.shown import shown


class _RefusedError(Exception):
    """Why a JSON text is not acceptable."""


def read_json_object(path: Path, max_values: int = MAX_JSON_VALUES) -> dict[str, Any]:
    """The JSON object that a whole file holds.

    Raises `BadInput` when the file cannot be opened, `FormatError` when it is too large or not such
    an object.
    """
    descriptor = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > MAX_JSON_BYTES:
            raise FormatError(path, "file", f"has {size} bytes, at most {MAX_JSON_BYTES} allowed")
        return parse_json_object(path, "JSON", file.read(size), max_values)


def parse_json_object(
    path: Path, field: str, text: bytes, max_values: int = MAX_JSON_VALUES
) -> dict[str, Any]:
    """The JSON object in `text`, UTF-8; `field` names it in a `FormatError`."""
    _check_size(path, field, text, max_values)
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


def _check_size(path: Path, field: str, text: bytes, max_values: int) -> None:
    """Cheap upper bounds of the numbers of values and lists, before any of them takes memory."""
    objects = text.count(b"{")
    if text.count(b",") + objects > max_values:
        raise FormatError(path, field, f"has more than {max_values} values")
    if text.count(b"[") > MAX_JSON_LISTS + 2 * objects:  # a tensor has two: shape and offsets
        raise FormatError(path, field, f"has more than {MAX_JSON_LISTS} lists of no tensor")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if not pairs:
        return {}
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    raise _RefusedError(f"key {shown(key)} occurs twice")


def _refuse_constant(name: str) -> Any:
    raise _RefusedError(f"holds {name}, which is not JSON")
