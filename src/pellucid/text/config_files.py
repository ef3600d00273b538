"""The small JSON and Jinja files beside a model's weights, read with bounds."""

from __future__ import annotations

import json
from pathlib import Path

from pellucid.core.errors import BadInput, FormatError

MAX_CONFIG_BYTES = 64 << 20
MAX_TOKENIZER_BYTES = 512 << 20


def read_text(path: Path, limit: int = MAX_CONFIG_BYTES) -> str | None:
    """The file's text; None when there is no such file. Raises `FormatError` when it is larger
    than `limit` bytes or not UTF-8."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise FormatError(path, "size", f"larger than {limit} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, f"byte {error.start}", "is not UTF-8") from error


def read_object(path: Path) -> dict[str, object]:
    """The JSON object in the file; empty when there is no such file."""
    text = read_text(path)
    if text is None:
        return {}
    value = parse_json(path, text)
    if not isinstance(value, dict):
        raise FormatError(path, "top level", "must be a JSON object")
    return value


def parse_json(path: Path, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, "content", f"is not JSON: {error}") from error
