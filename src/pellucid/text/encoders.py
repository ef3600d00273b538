"""From a run of ordinary text to ids: what stands between added tokens."""

from __future__ import annotations

from typing import Protocol

from tokenizers import Tokenizer as Library

from pellucid.core.errors import BadInput

Span = tuple[int, int]


class Encoder(Protocol):
    """`at_start`: nothing came before this text. Spans are (start, end) in characters."""

    def ids(self, text: str, at_start: bool) -> list[int]: ...

    def spans(self, text: str, at_start: bool) -> tuple[list[int], list[Span]]: ...


class LibraryEncoder:
    """The `tokenizers` library, with a second instance for text that something precedes where the
    two differ (a space put before the first word only)."""

    def __init__(self, first: Library, later: Library | None = None) -> None:
        self.library = first
        self.later = later or first

    def ids(self, text: str, at_start: bool) -> list[int]:
        return self._encode(text, at_start).ids  # type: ignore[no-any-return]

    def spans(self, text: str, at_start: bool) -> tuple[list[int], list[Span]]:
        encoding = self._encode(text, at_start)
        return encoding.ids, encoding.offsets

    def _encode(self, text: str, at_start: bool):  # type: ignore[no-untyped-def]
        library = self.library if at_start else self.later
        try:
            return library.encode(text, add_special_tokens=False)
        except Exception as error:
            raise BadInput(f"this text cannot be tokenized: {error}") from error
        except BaseException as error:
            # A panic in the library (its regular expressions cap their own effort).
            if type(error).__name__ != "PanicException":
                raise
            raise BadInput(
                "this text cannot be tokenized: its repetitions exhaust the pre-tokenizer; "
                "shorten them"
            ) from error
