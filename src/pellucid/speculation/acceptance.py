"""Acceptance: how often guesses turn out right, by their kind and their place in a draft."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

# Places from here on are one: what has gone well for so long goes on alike.
LAST_PLACE: Final = 4

# What is expected of guesses that nothing is known of, and how many guesses that counts for.
_HOPE: Final = 0.7
_HOPE_WEIGHT: Final = 2.0
# How many guesses of all requests the common experience counts for in one request's own.
_COMMON_WEIGHT: Final = 10.0
# A guess counts half after so many more of its kind and place: texts change as they go on.
_OWN_HALF_LIFE: Final = 32.0
_COMMON_HALF_LIFE: Final = 200.0


class _Share:
    """Right ones among those tried, older ones counting less."""

    __slots__ = ("right", "tried")

    def __init__(self) -> None:
        self.right = 0.0
        self.tried = 0.0

    def note(self, right: bool, half_life: float) -> None:
        fade = 0.5 ** (1.0 / half_life)
        self.right = self.right * fade + right
        self.tried = self.tried * fade + 1.0

    def with_prior(self, share: float, weight: float) -> float:
        return (self.right + share * weight) / (self.tried + weight)


_Class = tuple[int, int]  # kind, place


class Acceptance:
    """Of one engine: what all requests have seen, and each request by itself."""

    def __init__(self) -> None:
        self._common: dict[_Class, _Share] = defaultdict(_Share)
        self._own: dict[int, dict[_Class, _Share]] = {}

    def chances(self, sequence: int, kind: int, count: int) -> list[float]:
        """For each place of a draft of `count`: how likely its guess is right, if all before it
        are."""
        own = self._own.get(sequence, {})
        chances: list[float] = []
        hope = _HOPE
        for place in range(min(count, LAST_PLACE + 1)):
            hope = self._chance(own, (kind, place), hope)
            chances.append(hope)  # of the next place as much is expected
        return chances + chances[-1:] * (count - len(chances))

    def note(self, sequence: int, kind: int, n_guessed: int, n_accepted: int) -> None:
        """Of a draft the first `n_accepted` were right; the one after it, if any, was not, and the
        rest was never looked at."""
        own = self._own.setdefault(sequence, defaultdict(_Share))
        for place in range(min(n_accepted + 1, n_guessed)):
            key = kind, min(place, LAST_PLACE)
            right = place < n_accepted
            own[key].note(right, _OWN_HALF_LIFE)
            self._common[key].note(right, _COMMON_HALF_LIFE)

    def forget(self, sequence: int) -> None:
        self._own.pop(sequence, None)

    def _chance(self, own: dict[_Class, _Share], key: _Class, hope: float) -> float:
        common = self._common.get(key)
        chance = hope if common is None else common.with_prior(hope, _HOPE_WEIGHT)
        mine = own.get(key)
        return chance if mine is None else mine.with_prior(chance, _COMMON_WEIGHT)


def expected_tokens(chances: Sequence[float]) -> float:
    """Tokens that a step gives with a draft of these chances: those accepted, and one more."""
    total = survives = 1.0
    for chance in chances:
        survives *= chance
        total += survives
    return total
