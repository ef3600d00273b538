"""Rejection sampling: guesses are taken or not so that the distribution stays what it was.

A guess x was drawn from q, the model's own distribution is p. x is accepted with the probability
min(1, p(x) / q(x)); else the token is drawn from the rest, max(0, p - q), normalised (Leviathan et
al. 2022, theorem 1). Whatever q is, what comes has the distribution p. A guess that was looked up
was drawn from nothing: q is 1 at it.

Which tokens come of a seed depends on how long drafts were, and so on the traffic; their
distribution does not. Greedy answers are those of the exact rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import TokenChoice
from pellucid.core.record import GuessCheck
from pellucid.sampling import Draw, Sampler, invert, uniform
from pellucid.speculation.drafter import Guess

Float32 = NDArray[np.float32]


def _nobody(*told: object) -> None:
    """Listens to what decided."""


def drawn_guess(sampler: Sampler, logits: Float32, draw: Draw) -> Guess:
    """Draw a guess from a draft model's row of logits, float32 [vocabulary]. Raises as
    `Sampler.choose`."""
    found = sampler.distribution(logits, draw)
    place = invert(found.probabilities, uniform(draw.seed, draw.position, "guess"))
    return Guess(int(found.ids[place]), found, float(found.probabilities[place]))


def choose(
    sampler: Sampler,
    logits: Float32,
    draw: Draw,
    guessed: Guess,
    note: Callable[[GuessCheck], None] = _nobody,
) -> TokenChoice:
    """The next token from one row of logits: the guess, or another where it is rejected. `note` is
    told what decided. Raises as `Sampler.choose`."""
    own = sampler.distribution(logits, draw)
    token = guessed.token
    [chance] = own.of(np.array([token]))
    if guessed.drawn_from is None:
        theirs = (own.ids == token).astype(np.float64)
        certain = 1.0
    else:
        theirs = guessed.drawn_from.of(own.ids)
        [certain] = guessed.drawn_from.of(np.array([token]))
    drawn = uniform(draw.seed, draw.position, "accept")
    looked_up = guessed.drawn_from is None
    note(GuessCheck(float(chance), None if looked_up else float(certain), drawn))
    if drawn * certain >= chance:
        rest = np.maximum(own.probabilities - theirs, 0.0)
        if not rest.any():  # p and q are equal but for rounding
            rest = own.probabilities
        token = int(own.ids[invert(rest, uniform(draw.seed, draw.position, "rest"))])
    return sampler.describe(logits, draw, token)


def choose_rows(
    sampler: Sampler,
    logits: Float32,
    rows: Sequence[int],
    draws: Sequence[Draw],
    guesses: Sequence[Guess | None],
    note: Callable[[int, GuessCheck], None] = _nobody,
) -> list[TokenChoice | PellucidError]:
    """For each of `rows` of logits, float32 [R, vocabulary], a token or why there is none. Where
    nothing was guessed it is an ordinary draw. `note` is told by place what decided."""
    plain = [i for i, one in enumerate(guesses) if one is None]
    found = sampler.choose_rows(logits, [rows[i] for i in plain], [draws[i] for i in plain])
    choices: dict[int, TokenChoice | PellucidError] = dict(zip(plain, found, strict=True))
    for i, one in enumerate(guesses):
        if one is None:
            continue
        try:
            choices[i] = choose(sampler, logits[rows[i]], draws[i], one, partial(note, i))
        except PellucidError as error:
            choices[i] = error
    return [choices[i] for i in range(len(rows))]
