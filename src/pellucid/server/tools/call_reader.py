"""One call's JSON object, character by character: its name, and its arguments as they come."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

_BLANK: Final = " \t\r\n"


class CallReader:
    """Reads `{"name": ..., "arguments": {...}}`, keys in any order, other keys passed over.

    `name` is None until it is known. `take_arguments` gives what came of the arguments' JSON text
    since the last time; arguments written as a JSON string are what that string holds. `done` and
    `failed` are final.
    """

    def __init__(self, argument_keys: tuple[str, ...]) -> None:
        self.name: str | None = None
        self.done = False
        self.failed = False
        self.has_arguments = False
        self._argument_keys = argument_keys
        self._arguments = ""
        self._key = ""
        self._raw = ""  # of the key or value being read
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._state: Callable[[str], None] = self._before

    def push(self, text: str) -> int:
        """How many characters of `text` belong to the object."""
        for place, char in enumerate(text):
            if self.done or self.failed:
                return place
            self._state(char)
        return len(text)

    def take_arguments(self) -> str:
        taken, self._arguments = self._arguments, ""
        return taken

    def _before(self, char: str) -> None:
        if char == "{":
            self._state = self._before_key
        elif char not in _BLANK:
            self.failed = True

    def _before_key(self, char: str) -> None:
        if char == '"':
            self._raw, self._state = char, self._in_key
        elif char == "}":
            self._finish()
        elif char not in _BLANK:
            self.failed = True

    def _in_key(self, char: str) -> None:
        self._raw += char
        if self._ends_string(char):
            self._key = str(self._parsed())
            self._state = self._before_colon

    def _before_colon(self, char: str) -> None:
        if char == ":":
            self._raw, self._depth, self._in_string = "", 0, False
            self._state = self._before_value
        elif char not in _BLANK:
            self.failed = True

    def _before_value(self, char: str) -> None:
        if char not in _BLANK:
            self.has_arguments = self.has_arguments or self._in_arguments
            self._state = self._in_value
            self._in_value(char)

    def _in_value(self, char: str) -> None:
        if not self._in_string and self._depth == 0 and char in ",}":  # after a bare number or word
            self._end_value()
            self._after_value(char)
            return
        self._raw += char
        if self._in_arguments and not self._raw.startswith('"'):
            self._arguments += char
        if self._in_string:
            self._in_string = not self._ends_string(char)
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
            return
        elif char in "}]":
            self._depth -= 1
        if self._depth == 0 and not self._in_string and char in '"}]':
            self._end_value()

    def _after_value(self, char: str) -> None:
        if char == ",":
            self._state = self._before_key
        elif char == "}":
            self._finish()
        elif char not in _BLANK:
            self.failed = True

    def _end_value(self) -> None:
        self._state = self._after_value
        if self._key == "name":
            name = self._parsed()
            self.name = name if isinstance(name, str) else None
            self.failed = self.name is None
        elif self._in_arguments and self._raw.startswith('"'):
            self._arguments += str(self._parsed())

    def _finish(self) -> None:
        self.done = True
        self.failed = self.name is None
        if not self.has_arguments:
            self._arguments = "{}"

    @property
    def _in_arguments(self) -> bool:
        return self._key in self._argument_keys

    def _ends_string(self, char: str) -> bool:
        ends = char == '"' and not self._escaped
        self._escaped = char == "\\" and not self._escaped
        return ends

    def _parsed(self) -> object:
        try:
            return json.loads(self._raw)
        except ValueError:
            self.failed = True
            return None
