"""Confidence: how often guesses are right that their drafter gave such a chance.

A model's own probability of its guess tells good guesses from bad ones, but not by itself how good:
a small model is surer than it should be, and the larger one may draw otherwise. So guesses are
sorted by that probability, and each class learns its share of right ones.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from pellucid.speculation.share import Share

# Classes of a drafter's own chance begin at these.
_EDGES: Final = (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
# Guesses that the chance itself counts for in a class; a guess counts half after so many more.
_OWN_WEIGHT: Final = 6.0
_HALF_LIFE: Final = 300.0


class Confidence:
    """Of one engine's drafter."""

    def __init__(self) -> None:
        self._classes = [Share() for _ in _EDGES]
        self._all = Share()

    def of(self, chance: float) -> float:
        """How likely a guess is right that its drafter gave the probability `chance`."""
        return self._classes[_class(chance)].with_prior(chance, _OWN_WEIGHT)

    @property
    def typical(self) -> float:
        """How likely the next guess is right, before it is made."""
        return self._all.with_prior(0.8, _OWN_WEIGHT)

    def note(self, chance: float, right: bool) -> None:
        """A guess of that chance was looked at."""
        for share in (self._classes[_class(chance)], self._all):
            share.note(right, _HALF_LIFE)


@dataclass(frozen=True, slots=True)
class Worth:
    """How sure guesses must be. One is worth its row of the model's step if it is looked at and
    right with the chance `row`, and worth being made as well with the chance `more`."""

    confidence: Confidence
    row: float
    more: float

    def after(self, survives: float, chance: float) -> float:
        """How likely all guesses are right, `survives` those before one of such a chance."""
        return survives * self.confidence.of(chance)

    def goes_on(self, survives: float) -> bool:
        """Whether one more guess is to be made."""
        return survives * self.confidence.typical > self.more


def _class(chance: float) -> int:
    return max(bisect_right(_EDGES, chance) - 1, 0)
