"""A model file's metadata: a mapping whose typed accessors name the file and key when they fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from pellucid.core.errors import FormatError
from pellucid.formats.shown import shown

T = TypeVar("T")
_REQUIRED: Any = object()
_MEND = "the file was not written by a correct tool: fetch another copy or convert it again"


class Metadata(Mapping[str, Any]):
    """GGUF keys and values, or a parsed `config.json`.

    Values are int, float, bool, str, list[str] (GGUF string arrays), one-dimensional NumPy arrays
    (other GGUF arrays, read-only views of the file), and what JSON holds for `config.json`.
    `types[key]` is the value's type as the file states it, such as "uint32" or "array of float32";
    `offsets[key]` is the byte offset of a GGUF value.

    Each accessor takes a default for a missing key (or a JSON null) and raises `FormatError` with
    the file, key and offset when the value has another type or none is there and none was given.
    """

    def __init__(
        self,
        path: Path,
        values: Mapping[str, Any],
        types: Mapping[str, str] | None = None,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        self.path = path
        self._values = values
        self._types = types if types is not None else {}
        self._offsets = offsets if offsets is not None else {}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def type_of(self, key: str) -> str:
        """The type of a value in words."""
        return self._types.get(key) or _type_in_words(self._values[key])

    def error(self, key: str, problem: str, mend: str = _MEND) -> FormatError:
        """An error about one key, for the caller to raise."""
        where = f" (byte {self._offsets[key]})" if key in self._offsets else ""
        return FormatError(self.path, f"key {shown(key)}{where}", problem, mend)

    @overload
    def integer(self, key: str, *, low: int = ..., high: int = ...) -> int: ...
    @overload
    def integer(self, key: str, default: T, *, low: int = ..., high: int = ...) -> int | T: ...
    def integer(
        self, key: str, default: Any = _REQUIRED, *, low: int = 0, high: int = (1 << 63) - 1
    ) -> Any:
        """A whole number from `low` to `high`."""
        value = self._get(key, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "an integer")
        if not low <= value <= high:
            raise self.error(key, f"is {shown(value)}, must be from {low} to {high}")
        return value

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, default: T) -> str | T: ...
    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self._get(key, default)
        if value is not default and not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    @overload
    def texts(self, key: str) -> list[str]: ...
    @overload
    def texts(self, key: str, default: T) -> list[str] | T: ...
    def texts(self, key: str, default: Any = _REQUIRED) -> Any:
        """A list of strings."""
        value = self._get(key, default)
        if value is default:
            return value
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "an array of strings")
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.error(key, "is missing")
        return default

    def _wrong(self, key: str, words: str) -> FormatError:
        return self.error(key, f"is {self.type_of(key)}, must be {words}")


def _type_in_words(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of {value.dtype.name}"
    names = {bool: "a boolean", int: "an integer", float: "a floating-point number"}
    names |= {str: "a string", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), type(value).__name__)
