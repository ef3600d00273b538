"""Prompt lookup: what followed the same words earlier in the request's own text (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges
from pellucid.speculation.drafter import Ask, Guess, Outlook
from pellucid.speculation.suffixes import Suffixes

# Tokens that are read into an index at once, about 10 ms; a longer prompt takes several steps.
_READ_AT_ONCE: Final = 4096
# The longer what matched, the likelier what follows: lengths below each of these are one kind.
_KINDS: Final = (2, 3, 4, 6, 10, 20)


class PromptLookup:
    """A suffix automaton for each sequence, of its prompt and answer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._texts: dict[int, Suffixes] = {}

    def seconds_each(self, n_sequences: int) -> float:
        return 0.0

    def observe(self, plan: Plan, changes: PageChanges) -> None:
        """Pages do not matter here."""

    def outlook(self, sequence: int, tokens: Sequence[int], pages: Sequence[int]) -> Outlook:
        text = self._texts.get(sequence)
        if text is None:
            text = self._texts[sequence] = Suffixes()
        known = len(text)
        text.extend(tokens[known : known + _READ_AT_ONCE])
        if len(text) < len(tokens) or not text.match_length:
            return Outlook(0)
        return Outlook(self._most, sum(text.match_length >= length for length in _KINDS))

    def draft(self, asks: Sequence[Ask]) -> list[tuple[Guess, ...]]:
        copied = [self._texts[ask.sequence].continuation(ask.n_tokens) for ask in asks]
        return [tuple([Guess(token) for token in tokens]) for tokens in copied]

    def accepted(self, sequence: int, computed: int, pages: Sequence[int]) -> None:
        """Drafts leave nothing behind."""

    def forget(self, sequence: int) -> None:
        self._texts.pop(sequence, None)
