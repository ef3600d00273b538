"""Drafter: what guesses the tokens that come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges
from pellucid.sampling import Distribution, Draw
from pellucid.speculation.confidence import Worth


class Outlook(NamedTuple):
    """What a drafter could do for a sequence now: how many tokens it can guess at most, the `kind`
    of guesses these are, and seconds that it would take before the first of them. Guesses of one
    kind are expected to be right equally often; `hopes`: how often, by place, where the drafter has
    an idea of it."""

    most: int
    kind: int = 0
    seconds_before: float = 0.0
    hopes: tuple[float, ...] = ()


NOTHING: Final = Outlook(0)
"""Where there is nothing to guess."""


class Ask(NamedTuple):
    """Guess `n_tokens`, or fewer, after `tokens`.

    `tokens` is the sequence's prompt and answer, not to be changed; all but the last are in the
    model's cache. `pages` have room for `n_tokens` positions more. `draw` is what the choice of the
    first of them depends on. `worth` says how sure guesses must be; None: any will do.
    """

    sequence: int
    tokens: Sequence[int]
    n_tokens: int
    pages: Sequence[int]
    draw: Draw
    worth: Worth | None = None


class Guess(NamedTuple):
    """A token that was guessed, and what it was drawn from; None where nobody asks for that, and
    where it was not drawn at all. `chance`: the probability that its drafter gave it, None where it
    has none."""

    token: int
    drawn_from: Distribution | None = None
    chance: float | None = None


class Drafter(Protocol):
    """Guesses for many sequences, known by their numbers."""

    def seconds_each(self, n_sequences: int) -> float | None:
        """What a guess for each of so many takes to make, 0.0 where it is next to nothing; None if
        that is not known yet."""

    def observe(self, plan: Plan, changes: PageChanges) -> None:
        """A step is about to compute `plan`; `changes` is what happened to pages for it."""

    def outlook(self, sequence: int, tokens: Sequence[int], pages: Sequence[int]) -> Outlook:
        """What could be guessed after `tokens`, the sequence's own, that lie on `pages`."""

    def draft(self, asks: Sequence[Ask]) -> list[tuple[Guess, ...]]:
        """Guesses for each, in order; an empty one where there is nothing to say. Fewer than asked
        for where the next would not be worth it."""

    def accepted(self, sequence: int, computed: int, pages: Sequence[int]) -> None:
        """Of the sequence's tokens the first `computed` stand; what was drafted after is void."""

    def forget(self, sequence: int) -> None:
        """The sequence is over."""
