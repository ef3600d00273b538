"""Acceptance: how often guesses are made and turn out right, by kind and place in a draft.

A drafter that ends a draft early, because it is not sure enough of what it guesses, makes no guess
for the places after. Such a place counts as one that was not right, for it gave no token; that it
cost nothing either is what `made` tells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from pellucid.speculation.share import Share

# Places from here on are one: what has gone well for so long goes on alike.
LAST_PLACE: Final = 4

# What is expected of guesses that nothing is known of, and how many guesses that counts for; more
# where their drafter has an expectation of its own.
_HOPE: Final = 0.7
_HOPE_WEIGHT: Final = 2.0
_OWN_HOPE_WEIGHT: Final = 6.0
# How many guesses of all requests the common experience counts for in one request's own.
_COMMON_WEIGHT: Final = 10.0
# A guess counts half after so many more of its kind and place: texts change as they go on.
_OWN_HALF_LIFE: Final = 32.0
_COMMON_HALF_LIFE: Final = 200.0


_Class = tuple[int, int]  # kind, place


class Acceptance:
    """Of one engine: what all requests have seen, and each request by itself."""

    def __init__(self) -> None:
        self._common: dict[_Class, Share] = defaultdict(Share)
        self._own: dict[int, dict[_Class, Share]] = {}
        self._made: dict[_Class, Share] = defaultdict(Share)

    def chances(
        self, sequence: int, kind: int, count: int, hopes: Sequence[float] = ()
    ) -> list[float]:
        """For each place of a draft of `count`: how likely its guess is right, if all before it
        are. `hopes`: what its drafter expects of the first places; without, each is expected to be
        as good as the one before."""
        own = self._own.get(sequence, {})
        chances: list[float] = []
        hope = _HOPE
        for place in range(min(count, LAST_PLACE + 1)):
            expects = place < len(hopes)
            weight = _OWN_HOPE_WEIGHT if expects else _HOPE_WEIGHT
            hope = self._chance(own, (kind, place), hopes[place] if expects else hope, weight)
            chances.append(hope)
        return chances + chances[-1:] * (count - len(chances))

    def made(self, kind: int, count: int) -> list[float]:
        """For each place of a draft of `count`: how likely a guess is made for it."""
        made: list[float] = []
        whole = share = 1.0
        for place in range(count):
            if place <= LAST_PLACE:
                known = self._made.get((kind, place))
                share = 1.0 if known is None else known.with_prior(1.0, _HOPE_WEIGHT)
            whole *= share
            made.append(whole)
        return made

    def note(
        self, sequence: int, kind: int, n_guessed: int, n_accepted: int, *, ended: bool = False
    ) -> None:
        """Of a draft the first `n_accepted` were right; the one after it, if any, was not, and the
        rest was never looked at. `ended`: the drafter made no more guesses, of its own accord."""
        own = self._own.setdefault(sequence, defaultdict(Share))
        for place in range(min(n_accepted + 1, n_guessed + ended)):
            key = kind, min(place, LAST_PLACE)
            right = place < n_accepted
            own[key].note(right, _OWN_HALF_LIFE)
            self._common[key].note(right, _COMMON_HALF_LIFE)
        for place in range(n_guessed + ended):
            self._made[kind, min(place, LAST_PLACE)].note(place < n_guessed, _COMMON_HALF_LIFE)

    def forget(self, sequence: int) -> None:
        self._own.pop(sequence, None)

    def _chance(self, own: dict[_Class, Share], key: _Class, hope: float, weight: float) -> float:
        common = self._common.get(key)
        chance = hope if common is None else common.with_prior(hope, weight)
        mine = own.get(key)
        return chance if mine is None else mine.with_prior(chance, _COMMON_WEIGHT)
