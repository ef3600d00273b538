"""How a value from a file appears in an error: on one line, printable and short."""

from __future__ import annotations

from typing import Any

MAX_SHOWN = 80


def shown(value: Any) -> str:
    """`repr`, cut to about `MAX_SHOWN` characters."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]!r}..."
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
