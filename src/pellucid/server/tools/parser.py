"""Tool calls out of an answer's text, as it comes.

    outside --begin mark, or a brace where the answer begins--> inside --its object ends--> closing
       ^------------------ the end mark, or anything else ----------------------------------'

Outside, what may yet become a begin mark is held back, and so are blanks, which a call makes
meaningless. Inside, a call is told once its name is known and its arguments begin; they follow as
they are written. What begins like a call and turns out to be none is text after all.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pellucid.server.tools.call_reader import CallReader
from pellucid.server.tools.formats import ToolFormat


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    index: int
    text: str


Part = Text | CallBegins | CallArguments

_BLANK: Final = " \t\r\n"
_BETWEEN_CALLS: Final = _BLANK + ";"


class ToolParser:
    """`push` and `finish` return what the text adds. `names` are the tools there are; `only_one`
    drops what follows the first call; `new_id` gives the id of call i."""

    def __init__(
        self,
        form: ToolFormat,
        names: frozenset[str],
        *,
        only_one: bool = False,
        new_id: Callable[[int], str] = lambda _: f"call_{secrets.token_hex(12)}",
    ) -> None:
        self._form = form
        self._names = names
        self._only_one = only_one
        self._new_id = new_id
        self._held = ""  # not told yet, of the text outside or closing
        self._reader: CallReader | None = None
        self._written = ""  # of the call being read, until it is told
        self._told = False
        self._closing = False
        self._answered = False  # text was told
        self.n_calls = 0

    @property
    def complete(self) -> bool:
        """True once nothing that follows will be told."""
        return self._only_one and self.n_calls > 0 and self._reader is None

    def push(self, text: str) -> list[Part]:
        self._held += text
        return list(self._advance(at_end=False))

    def finish(self) -> list[Part]:
        """The answer has ended: what was held back."""
        parts = list(self._advance(at_end=True))
        if self._reader is not None and not self._told:
            parts += self._give_back()
        return parts

    def _advance(self, *, at_end: bool) -> Iterator[Part]:
        while self._held and not self.complete:
            before = self._held, self._reader
            if self._closing:
                self._close(at_end)
            elif self._reader is not None:
                yield from self._inside(self._reader)
            else:
                yield from self._outside(at_end)
            if (self._held, self._reader) == before:
                return

    def _outside(self, at_end: bool) -> Iterator[Part]:
        """Text up to where a call begins, or may begin."""
        place, mark = self._find_call()
        if mark is None:
            place = len(self._held) if at_end else self._safe_length()
            blanks = 0 if at_end else place - len(self._held[:place].rstrip(_BLANK))
            yield from self._say(self._held[: place - blanks])
            self._held = self._held[place - blanks :]
            return
        text = self._held[:place].rstrip(_BLANK)
        yield from self._say(text)
        self._written, self._told = self._held[len(text) : place + len(mark)], False
        self._held = self._held[place + len(mark) :]
        self._reader = CallReader(self._form.arguments)

    def _inside(self, reader: CallReader) -> Iterator[Part]:
        length = reader.push(self._held)
        self._written += self._held[:length]
        self._held = self._held[length:]
        unknown = reader.name is not None and reader.name not in self._names
        if (reader.failed or unknown) and not self._told:
            yield from self._give_back()
            return
        if not self._told and reader.name is not None and (reader.has_arguments or reader.done):
            self._told, self._written = True, ""
            yield CallBegins(self.n_calls, self._new_id(self.n_calls), reader.name)
            self.n_calls += 1
        if self._told:
            arguments = reader.take_arguments()
            if arguments:
                yield CallArguments(self.n_calls - 1, arguments)
            if reader.done or reader.failed:
                self._reader = None
                self._closing = bool(self._form.end)

    def _close(self, at_end: bool) -> None:
        """Passes over the end mark, if that is what comes."""
        rest = self._held.lstrip(_BLANK)
        if rest.startswith(self._form.end):
            self._held = rest[len(self._form.end) :]
        elif self._form.end.startswith(rest):
            if not at_end:
                return
            self._held = ""
        self._closing = False

    def _give_back(self) -> list[Part]:
        self._reader = None
        written, self._written = self._written, ""
        return list(self._say(written))

    def _say(self, text: str) -> Iterator[Part]:
        if self.n_calls and not text.strip(_BETWEEN_CALLS):
            return
        if text:
            self._answered = self._answered or bool(text.strip())
            yield Text(text)

    def _find_call(self) -> tuple[int, str | None]:
        place = self._held.find(self._form.begin)
        if place >= 0:
            return place, self._form.begin
        if self._form.bare and not self._answered:
            skip = _BETWEEN_CALLS if self.n_calls else _BLANK
            place = len(self._held) - len(self._held.lstrip(skip))
            if self._held.startswith("{", place):
                return place, ""
        return 0, None

    def _safe_length(self) -> int:
        """How much of the held text can be no part of a begin mark."""
        begin = self._form.begin
        for length in range(min(len(begin) - 1, len(self._held)), 0, -1):
            if self._held.endswith(begin[:length]):
                return len(self._held) - length
        return len(self._held)
