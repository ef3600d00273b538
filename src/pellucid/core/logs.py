"""Logs: lines for people or JSON for machines, on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

# What every record has; anything else was said by whoever logged.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEFT_OUT: Final = frozenset({"color_message"})


@dataclass(frozen=True, slots=True)
class LogForm:
    """level: the least that is said, of `LEVELS`. form: of `FORMATS`."""

    level: str = "info"
    form: str = "text"


def log_to_stderr(form: LogForm) -> None:
    """Have this process log so; what was set up before is forgotten. For a process's main."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form.form == "json" else TextLines())
    logging.basicConfig(level=form.level.upper(), handlers=[handler], force=True)


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, what was given as `extra`, and
    an exception's traceback under `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **said_beside(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """Time, level and message; what was given as `extra` follows as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        beside = "".join(f" {name}={value}" for name, value in said_beside(record).items())
        line = f"{_utc(record.created)} {record.levelname.lower():7} {record.getMessage()}{beside}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def said_beside(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`; libraries put names of their own there, which begin with _."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _USUAL and name not in _LEFT_OUT and not name.startswith("_")
    }


def _utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
