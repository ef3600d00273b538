"""What would change an answer's pace: a batch, fewer bits, a draft; by costs and limits.

Each change is a step before and a step after, the least seconds of each by the roofline, and the
tokens that the step gives. A measurement puts seconds of real steps in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pellucid.costs.roofline import Limits, Priced, bound

BATCH = 32
GUESSES = 4
ACCEPTED = 0.7  # of guesses, where the one before was right
DRAFT_SIZE = 0.1  # of the model's own bytes and operations


@dataclass(frozen=True, slots=True)
class Shape:
    """A step of decode: `rows` positions for each of `batch` sequences of `context` positions."""

    context: int
    batch: int = 1
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of a step, and the tokens that come of it."""

    seconds: float
    tokens: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Pair:
    """The step as it is, and as it would be."""

    before: Outcome
    after: Outcome

    @property
    def times(self) -> float:
        """How many times as many tokens a second."""
        return self.after.tokens_per_second / self.before.tokens_per_second


class Change(Enum):
    """What could be changed."""

    BATCH = f"a batch of {BATCH}"
    HALF_BITS = "half the bits"
    OTHER_BITS = "other bits"
    DRAFT = "a draft model"
    NGRAM = "an n-gram draft"


_ASSUMED = f"predicted if {ACCEPTED:.0%} of guesses are accepted"
_NOTES = {
    Change.BATCH: "tokens of all sequences together",
    Change.DRAFT: _ASSUMED,
    Change.NGRAM: _ASSUMED,
}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change, in words; what it makes of a step; and the same measured, where it was. `seen` is
    what was counted while it was measured."""

    kind: Change
    change: str
    predicted: Pair
    measured: Pair | None = None
    seen: str = ""

    @property
    def note(self) -> str:
        """What is assumed, and what was counted."""
        return "; ".join(filter(None, (_NOTES.get(self.kind, ""), self.seen)))


def what_ifs(
    priced: Priced, limits: Limits, context: int, draft_size: float = DRAFT_SIZE
) -> list[WhatIf]:
    """A batch, half the bits and two kinds of draft, predicted for `context` positions; a model
    that guesses takes `draft_size` of this one's time."""
    now = _step(priced, limits, Shape(context))
    batch = _step(priced, limits, Shape(context, BATCH)).seconds
    check = _step(priced, limits, Shape(context, rows=1 + GUESSES)).seconds
    drafted = check + GUESSES * draft_size * now.seconds
    tokens = tokens_of_a_round(GUESSES, ACCEPTED)
    return [
        WhatIf(
            Change.BATCH,
            f"{BATCH} sequences in a step: weights are read once for all",
            Pair(now, Outcome(batch, BATCH)),
        ),
        bits(priced, limits, context, 0.5),
        WhatIf(
            Change.DRAFT,
            f"a model {draft_size:.2g} times as large guesses {GUESSES} tokens, one step checks",
            Pair(now, Outcome(drafted, tokens)),
        ),
        WhatIf(
            Change.NGRAM,
            f"{GUESSES} tokens guessed from the text itself, one step checks them",
            Pair(now, Outcome(check, tokens)),
        ),
    ]


def bits(priced: Priced, limits: Limits, context: int, factor: float) -> WhatIf:
    """`factor` times as many bits in every matrix; the arithmetic stays what it is."""
    now, then = priced.matrix_bits, priced.matrix_bits * factor
    change = f"matrices in {then:.3g} bits a weight, not {now:.3g}"
    shape = Shape(context)
    after = _step(priced.with_matrices(factor), limits, shape)
    kind = Change.HALF_BITS if factor == 0.5 else Change.OTHER_BITS
    return WhatIf(kind, change, Pair(_step(priced, limits, shape), after))


def tokens_of_a_round(guesses: int, accepted: float) -> float:
    """Tokens that a round gives on average: 1 + a + ... + a^k (Leviathan et al. 2023, eq. 1)."""
    return sum(accepted**i for i in range(guesses + 1))


def _step(priced: Priced, limits: Limits, shape: Shape) -> Outcome:
    cost = priced.decode(shape.context, shape.batch, shape.rows)
    return Outcome(bound(cost, limits).seconds, shape.batch)
