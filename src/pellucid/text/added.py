"""Tokens matched in the text as whole strings, before any other rule sees it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

# White_Space of Unicode, which both judges strip by; `str.isspace` adds U+001C to U+001F.
WHITESPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + ("\u2028\u2029\u202f\u205f\u3000")
)

_MAX_NESTING = 50  # tokens that extend each other nest; `re` compiles by recursion


@dataclass(frozen=True, slots=True)
class AddedToken:
    """`lstrip` / `rstrip`: the whitespace before / after it in the text vanishes."""

    text: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclass(frozen=True, slots=True)
class Fragment:
    """Text from `start` (in characters), or one token that stood there when `token` is set."""

    text: str
    start: int
    token: AddedToken | None = None


class AddedTokens:
    """Splits text at the leftmost, then longest, of the given tokens."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens = {token.text: token for token in tokens if token.text}
        self._pattern = re.compile(_trie_pattern(self._tokens)) if self._tokens else None

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[AddedToken]:
        return iter(self._tokens.values())

    @cached_property
    def longest(self) -> int:
        return max(map(len, self._tokens), default=0)

    @cached_property
    def heads(self) -> frozenset[str]:
        """Every proper beginning of a token."""
        return frozenset(token[:cut] for token in self._tokens for cut in range(1, len(token)))

    @cached_property
    def tails(self) -> frozenset[str]:
        """Every proper end of a token."""
        return frozenset(token[cut:] for token in self._tokens for cut in range(1, len(token)))

    def starts(self, text: str) -> list[int]:
        """Where tokens of more than one character begin in `text`, overlapping ones too."""
        return [match.start() for match in self._ahead.finditer(text)] if self._ahead else []

    def holds(self, text: str) -> bool:
        """Whether `text` is part of a token."""
        return len(text) <= self.longest and text in self._joined

    @cached_property
    def _joined(self) -> str:
        return "\0".join(self._tokens)

    @cached_property
    def _ahead(self) -> re.Pattern[str] | None:
        longer = [token for token in self._tokens if len(token) > 1]
        return re.compile(f"(?={_trie_pattern(longer)})") if longer else None

    def split(self, text: str) -> Iterator[Fragment]:
        """Fragments of `text` in order; stripped whitespace is in none of them."""
        done = search_from = 0
        while self._pattern and (match := self._pattern.search(text, search_from)):
            token = self._tokens[match.group()]
            start, search_from = match.span()
            if token.single_word and not _is_word(text, start, search_from):
                continue
            left = done + len(text[done:start].rstrip(WHITESPACE)) if token.lstrip else start
            if left > done:
                yield Fragment(text[done:left], done)
            yield Fragment(token.text, start, token)
            if token.rstrip:
                search_from = _skip_whitespace(text, search_from)
            done = search_from
        if done < len(text):
            yield Fragment(text[done:], done)


def _is_word(text: str, start: int, end: int) -> bool:
    before = start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_")
    after = end < len(text) and (text[end].isalnum() or text[end] == "_")
    return not before and not after


def _skip_whitespace(text: str, start: int) -> int:
    while start < len(text) and text[start] in WHITESPACE:
        start += 1
    return start


def _trie_pattern(words: Iterable[str]) -> str:
    """A regular expression for the longest of `words`, sharing prefixes: `re` tries the branches
    of a plain alternation one by one, which thousands of added tokens would make slow."""
    return _group(sorted(set(words)), 0, 0)


def _group(words: list[str], depth: int, nesting: int) -> str:
    """Pattern for what follows the first `depth` characters, which all of sorted `words` share."""
    if nesting == _MAX_NESTING:
        tails = sorted((word[depth:] for word in words), key=len, reverse=True)
        return f"(?:{'|'.join(map(re.escape, tails))})"
    ends_here = len(words[0]) == depth
    rest = words[1:] if ends_here else words
    if not rest:
        return ""
    branches = [
        re.escape(group[0][depth:shared]) + _group(group, shared, nesting + 1)
        for group, shared in _by_first_char(rest, depth)
    ]
    if len(branches) == 1 and not ends_here:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if ends_here else ''}"


def _by_first_char(words: list[str], depth: int) -> Iterator[tuple[list[str], int]]:
    """Sorted `words` grouped by their character at `depth`, with what each group shares."""
    for _, members in itertools.groupby(words, key=lambda word: word[depth]):
        group = list(members)
        yield group, _shared_prefix(group[0], group[-1])


def _shared_prefix(first: str, last: str) -> int:
    """Length of the prefix of two words, and so of all sorted between them."""
    limit = min(len(first), len(last))
    return next((i for i in range(limit) if first[i] != last[i]), limit)
