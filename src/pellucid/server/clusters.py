"""Characters that belong together: an emoji with what modifies it, a letter with its marks.

A stream sends such a cluster whole: while the last one may yet grow, it waits for what follows.
Only where that is likely, so that nothing else is late: at emoji, joiners, flags and marks, and at
letters of scripts that are written with marks. A mark that follows a letter of another script (a
decomposed é) comes as it was generated.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_FIRST: Final = "\u0300"  # nothing below can be held
_JOINER: Final = "\u200d"
_GROWING: Final = frozenset({"So", "Sk", "Mn", "Mc", "Me"})
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})
# Hebrew to Myanmar, Hangul's parts, Khmer to Balinese, and later blocks of the same kind.
_WITH_MARKS: Final = ((0x0590, 0x11FF), (0x1700, 0x1CFF), (0xA800, 0xABFF), (0x11000, 0x11FFF))
_HANGUL_PARTS: Final = ("\u1160", "\u11ff")  # vowels and finals
_SKIN: Final = ("\U0001f3fb", "\U0001f3ff")
_FLAGS: Final = ("\U0001f1e6", "\U0001f1ff")
_TAGS: Final = ("\U000e0020", "\U000e007f")


def held_back(text: str) -> int:
    """How many characters at the end of `text` should wait for what follows."""
    if not text or text[-1] < _FIRST or not _may_grow(text[-1]):
        return 0
    start = len(text) - 1
    while start > 0 and _continues(text, start):
        start -= 1
    return len(text) - start


def _may_grow(char: str) -> bool:
    code = ord(char)
    return (
        char == _JOINER
        or unicodedata.category(char) in _GROWING
        or _within(char, _TAGS)
        or any(first <= code <= last for first, last in _WITH_MARKS)
    )


def _continues(text: str, place: int) -> bool:
    """Whether the character at `place` belongs to the one before."""
    char, before = text[place], text[place - 1]
    return (
        char == _JOINER
        or before == _JOINER
        or unicodedata.category(char) in _MARKS
        or _within(char, _SKIN)
        or _within(char, _TAGS)
        or _within(char, _HANGUL_PARTS)
        or (_within(char, _FLAGS) and _flags_before(text, place) % 2 == 1)
    )


def _flags_before(text: str, place: int) -> int:
    """How many letters of flags stand in a row before `place`; two make a flag."""
    start = place
    while start > 0 and _within(text[start - 1], _FLAGS):
        start -= 1
    return place - start


def _within(char: str, bounds: tuple[str, str]) -> bool:
    return bounds[0] <= char <= bounds[1]
