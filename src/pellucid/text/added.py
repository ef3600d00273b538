"""Tokens matched in the text as whole strings, before any other rule sees it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tokenizers import AddedToken as LibraryToken
from tokenizers import Tokenizer as Library
from tokenizers import models


@dataclass(frozen=True, slots=True)
class AddedToken:
    """`lstrip` / `rstrip`: the whitespace before / after it in the text vanishes.
    `single_word`: it matches only where no letter or digit touches it."""

    text: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclass(frozen=True, slots=True)
class Fragment:
    """Characters `start` to `end` of a text. When `token` is set they are that token, and the
    whitespace it swallows; `text` is then the token's own."""

    text: str
    start: int
    end: int
    token: AddedToken | None = None


class AddedTokens:
    """Splits text at the leftmost, then longest, of the given tokens.

    The search is the `tokenizers` library's (a compiled automaton: regular expressions take
    seconds to compile for the vocabularies that add a hundred thousand tokens).
    """

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens = [token for token in tokens if token.text]
        self._library = _finder(self._tokens)
        self._first_chars = {token.text[0] for token in self._tokens}

    def __iter__(self) -> Iterator[AddedToken]:
        return iter(self._tokens)

    def split(self, text: str) -> Iterator[Fragment]:
        """Fragments of `text` in order, which together cover it."""
        done = 0
        for token, start, end in self._found(text):
            if start > done:
                yield Fragment(text[done:start], done, start)
            yield Fragment(token.text, start, end, token)
            done = end
        if done < len(text):
            yield Fragment(text[done:], done, len(text))

    def break_up(self, text: str, mark: str) -> str:
        """`text` with `mark` behind the first character of every token in it, overlapping ones
        too, so that none is left. Tokens of a single character cannot be broken, and stay."""
        while places := [start + 1 for _, start, _ in self._long._found(text)]:
            cuts = zip([0, *places], [*places, len(text)], strict=True)
            text = mark.join(text[a:b] for a, b in cuts)
        return text

    def begins(self, text: str) -> bool:
        """Whether `text` is the beginning of a token, and not all of it."""
        return _has_prefix(self._sorted, text)

    def ends(self, text: str) -> bool:
        """Whether `text` is the end of a token, and not all of it."""
        return _has_prefix(self._reversed, text[::-1])

    def holds(self, text: str) -> bool:
        """Whether `text` is part of a token."""
        return len(text) <= self.longest and text in self._joined

    @cached_property
    def longest(self) -> int:
        return max((len(token.text) for token in self._tokens), default=0)

    @cached_property
    def _long(self) -> AddedTokens:
        """The tokens of two characters and more, bare: no whitespace goes with them."""
        return AddedTokens(AddedToken(t.text, t.id) for t in self._tokens if len(t.text) > 1)

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(token.text for token in self._tokens)

    @cached_property
    def _reversed(self) -> list[str]:
        return sorted(token.text[::-1] for token in self._tokens)

    @cached_property
    def _joined(self) -> str:
        return "\0".join(self._sorted)

    def _found(self, text: str) -> list[tuple[AddedToken, int, int]]:
        if self._library is None or not any(char in text for char in self._first_chars):
            return []
        # As many texts, which lets other threads work meanwhile: a conversation may be megabytes.
        [encoding] = self._library.encode_batch([text], add_special_tokens=False)
        return [
            (self._tokens[index], start, end)
            for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]


def _finder(tokens: list[AddedToken]) -> Library | None:
    """A library tokenizer that knows nothing but these tokens, by their place in the list."""
    if not tokens:
        return None
    library = Library(models.BPE())
    library.add_special_tokens(
        [
            LibraryToken(
                token.text,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                single_word=token.single_word,
                normalized=False,
                special=True,
            )
            for token in tokens
        ]
    )
    return library


def _has_prefix(ordered: list[str], prefix: str) -> bool:
    """Whether a string longer than `prefix` in the sorted list starts with it."""
    place = bisect_left(ordered, prefix)
    if place < len(ordered) and ordered[place] == prefix:
        place += 1
    return place < len(ordered) and ordered[place].startswith(prefix)
