"""From a run of ordinary text to ids: what stands between added tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Protocol

from tokenizers import Tokenizer as Library

from pellucid.core.errors import BadInput
from pellucid.text.width import Width, width_of

Span = tuple[int, int]

# `encode` keeps other threads waiting, for seconds with some megabytes; the library's way for many
# texts does not, and takes less. One text is no work for many threads of its own.
_LONG: Final = 4096
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MAX_RUN: Final = 4_000_000
# The library's regular expressions give up, and panic, at ten million steps back in one match.
_RUN: Final = re.compile(r"\s+|\S+")


class Encoder(Protocol):
    """`at_start`: nothing came before this text. Spans are (start, end) in characters. `width`:
    what one token stands for at most, None where that is not known."""

    @property
    def width(self) -> Width | None: ...

    def ids(self, text: str, at_start: bool) -> list[int]: ...

    def spans(self, text: str, at_start: bool) -> tuple[list[int], list[Span]]: ...


def long_run(text: str, most: int) -> int | None:
    """Where a run of `most` characters begins, all of them blanks or none of them; None: nowhere.

    A run that long holds an aligned block of half its length, so that few places are looked at. (A
    regular expression for the run itself looks again from each character: quadratic in the length
    of words, with every other thread waiting.)
    """
    half = most // 2
    for place in range(0, len(text) - half + 1, half) if len(text) >= most else ():
        run = _RUN.match(text, place)
        assert run is not None, "every character is a blank or none"
        if run.end() - place < half:
            continue
        before = text[max(place - half, 0) : place][::-1]
        same = before[:1] and before[0].isspace() == text[place].isspace()
        tail = _RUN.match(before) if same else None
        begin = place - (0 if tail is None else tail.end())
        if run.end() - begin >= most:
            return begin
    return None


class LibraryEncoder:
    """The `tokenizers` library, with a second instance for text that something precedes where the
    two differ (a space put before the first word only)."""

    def __init__(self, first: Library, later: Library | None = None) -> None:
        self.library = first
        self.later = later or first

    @cached_property
    def width(self) -> Width | None:
        return width_of(self.library)

    def ids(self, text: str, at_start: bool) -> list[int]:
        found: list[int] = self._encode(text, at_start, with_spans=False).ids
        return found

    def spans(self, text: str, at_start: bool) -> tuple[list[int], list[Span]]:
        encoding = self._encode(text, at_start, with_spans=True)
        return encoding.ids, encoding.offsets

    def _encode(self, text: str, at_start: bool, *, with_spans: bool) -> Any:
        library = self.library if at_start else self.later
        run = long_run(text, MAX_RUN)
        if run is not None:
            raise BadInput(
                f"this text cannot be tokenized: from character {run} on, {MAX_RUN} "
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

    @property
    def width(self) -> Width | None:
        return self.inner.width  # the runs are among its vocabulary

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
