"""Checking: what the choice of tokens saw of guesses, for whoever watches.

A guess is told with p, the model's own probability of it, and q, that with which it was drawn. By
rejection sampling p is of what the token is drawn from, and the number that decided is told too. By
the exact rule p decides nothing; it is that of the model's scores at the request's temperature (at
1 where the likeliest is taken), before any filter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pellucid.core.record import GuessCheck
from pellucid.sampling import Draw
from pellucid.speculation.drafter import Guess

Float32 = NDArray[np.float32]

# Of one step: each takes a pass over a row of logits, a tenth of a millisecond.
MOST_CHECKS = 8


class Checks:
    """What became of the guesses of one step, by sequence, in their order."""

    def __init__(self) -> None:
        self._found: dict[int, list[GuessCheck]] = {}
        self._left = MOST_CHECKS

    def of(self, sequence: int) -> tuple[GuessCheck, ...]:
        return tuple(self._found.get(sequence, ()))

    def note(self, sequence: int, check: GuessCheck) -> None:
        """One more of a sequence."""
        self._found.setdefault(sequence, []).append(check)

    def look(self, sequence: int, row: Float32, draw: Draw, guess: Guess) -> None:
        """One that the exact rule checks against a row of logits, float32 [vocabulary]."""
        if self._left == 0 or not guess.token < len(row):
            return
        self._left -= 1
        heat = draw.params.temperature or 1.0
        scores = np.exp((row - row.max()) / np.float32(heat))
        share = float(scores[guess.token]) / float(scores.sum())
        if np.isfinite(share):  # scores that are no numbers end the request, in a moment
            self.note(sequence, GuessCheck(share, _drawn_with(guess)))


def _drawn_with(guess: Guess) -> float | None:
    if guess.drawn_from is None:
        return guess.chance
    [chance] = guess.drawn_from.of(np.array([guess.token]))
    return float(chance)
