"""From a run of ordinary text to ids: what stands between added tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from tokenizers import Tokenizer as Library

from pellucid.core.errors import BadInput

Span = tuple[int, int]

# `encode` keeps other threads waiting, for seconds with some megabytes; the library's way for many
# texts does not, and takes less. One text is no work for many threads of its own.
_LONG: Final = 4096
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MAX_RUN: Final = 4_000_000
# The library's regular expressions give up, and panic, at ten million steps back in one match.
_LONG_RUN: Final = re.compile(rf"\s{{{MAX_RUN}}}|\S{{{MAX_RUN}}}")


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
        found: list[int] = self._encode(text, at_start, with_spans=False).ids
        return found

    def spans(self, text: str, at_start: bool) -> tuple[list[int], list[Span]]:
        encoding = self._encode(text, at_start, with_spans=True)
        return encoding.ids, encoding.offsets

    def _encode(self, text: str, at_start: bool, *, with_spans: bool) -> Any:
        library = self.library if at_start else self.later
        if len(text) >= MAX_RUN and (run := _LONG_RUN.search(text)):
            raise BadInput(
                f"this text cannot be tokenized: from character {run.start()} on, {MAX_RUN} "
                "characters follow each other without a change from blanks to others; break them up"
            )
        try:
            if len(text) < _LONG:
                return library.encode(text, add_special_tokens=False)
            encode = library.encode_batch if with_spans else library.encode_batch_fast
            return encode([text], add_special_tokens=False)[0]
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


class WholeLinesEncoder:
    """Takes runs of newlines that are a token whole, whatever merges would make of them."""

    def __init__(self, inner: Encoder, runs: Mapping[str, int]) -> None:
        self.inner = inner
        self._runs = runs

    def ids(self, text: str, at_start: bool) -> list[int]:
        return self.spans(text, at_start)[0]

    def spans(self, text: str, at_start: bool) -> tuple[list[int], list[Span]]:
        ids: list[int] = []
        spans: list[Span] = []
        position = 0
        for part in re.split("(\n+)", text):
            end = position + len(part)
            if part in self._runs:
                ids.append(self._runs[part])
                spans.append((position, end))
            elif part:
                found, inner = self.inner.spans(part, at_start and position == 0)
                ids += found
                spans += [(position + start, position + stop) for start, stop in inner]
            position = end
        return ids, spans
