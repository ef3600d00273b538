"""Prompt lookup: what followed the same words earlier in the request's own text (Saxena 2023)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges
from pellucid.speculation.drafter import NOTHING, Ask, Guess, Outlook
from pellucid.speculation.suffixes import Suffixes

# Tokens that are read into an index at once, about 10 ms; a longer prompt takes several steps.
_READ_AT_ONCE: Final = 4096
# The longer what matched, the likelier what follows: lengths below each of these are one kind.
_KINDS: Final = (2, 3, 4, 6, 10, 20)
# How often first guesses of each kind are right: about what SmolLM2-135M and Qwen2.5-Coder-0.5B
# gave over edits, summaries and code, greedy and sampled (2,300 drafts). With a guess that is right
# the match is longer, so that the one after it is of the next kind.
_RIGHT: Final = (0.27, 0.45, 0.65, 0.75, 0.85, 0.95, 0.98)
_HOPES: Final = tuple(
    tuple(_RIGHT[min(kind + place, 4) if kind < 4 else kind] for place in range(5))
    for kind in range(len(_KINDS) + 1)
)


class PromptLookup:
    """A suffix automaton for each sequence, of its prompt and answer."""

    def __init__(self, most: int) -> None:
        self._outlooks = tuple(
            [Outlook(most, kind, hopes=hopes) for kind, hopes in enumerate(_HOPES)]
        )
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
            return NOTHING
        return self._outlooks[bisect_right(_KINDS, text.match_length)]

    def draft(self, asks: Sequence[Ask]) -> list[tuple[Guess, ...]]:
        copied = [self._texts[ask.sequence].continuation(ask.n_tokens) for ask in asks]
        return [tuple([Guess(token) for token in tokens]) for tokens in copied]

    def accepted(self, sequence: int, computed: int, pages: Sequence[int]) -> None:
        """Drafts leave nothing behind."""

    def forget(self, sequence: int) -> None:
        self._texts.pop(sequence, None)
