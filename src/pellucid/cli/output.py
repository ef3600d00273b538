"""What goes to standard output and standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


class ReaderLeftError(Exception):
    """Whoever read standard output has stopped: there is nobody left to answer."""


def write(text: str) -> None:
    """Text to standard output, at once. Raises `ReaderLeftError`, or `OSError` on a full disk."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderLeftError from error


def write_json(value: Any) -> None:
    """One JSON object on a line of its own; numbers that JSON has not become null."""
    write(json.dumps(_finite(value), ensure_ascii=False) + "\n")


def note(text: str) -> None:
    """A line to standard error; one that nobody can read is let go."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def in_bytes(size: int) -> str:
    """A size for people, in powers of 1000 as file managers show it: 98.4 MB."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Columns as wide as their widest cell; those in `right` are set flush right."""
    flush_right = set(right)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if i in flush_right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def printable(text: str) -> str:
    """Text on one line: control characters and line ends as escapes, so that a terminal obeys
    nothing that a file or a user wrote."""
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(char)
    return named.get(char) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
