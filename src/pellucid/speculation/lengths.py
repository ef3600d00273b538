"""Lengths: how many tokens to guess for each sequence, so that most tokens come of a second.

A step with drafts gives each sequence the tokens accepted and one more. It takes what a step of so
many rows takes, and the drafting. With the chance of each guess (`Acceptance`) and the time of each
number of rows (`StepTimes`) the best lengths follow: guesses are added, the likeliest first, and
the sum that gives most tokens a second is taken. That may be none.

A drafter that knows how sure it is need not make all guesses: `worth` says how sure is enough, at
the tokens a second that are hoped for.

What is not tried is not known. So a sequence without drafts is given a short one now and then, so
rarely that it costs next to nothing, and more rarely each time that it does not pay; and a step
without drafts is run now and then where all have some, to see what it takes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pellucid.speculation.acceptance import Acceptance
from pellucid.speculation.confidence import Confidence, Worth
from pellucid.speculation.timing import StepTimes

# Steps without a draft before a sequence is given one to see; doubled each time that it shows no
# gain. More where such a draft would cost more than this share of them.
_FIRST_PAUSE: Final = 24
_LAST_PAUSE: Final = 768
_TRIAL_SHARE: Final = 0.01
_TRIAL: Final = 2  # guesses of such a draft, and of the first of all
# Steps with drafts between two without, and steps without before the first draft of all.
_CHECK_PLAIN: Final = 64
_PLAIN_FIRST: Final = 2
# What a draft must promise to be made: estimates are rough, and a plain step is certain.
_MARGIN: Final = 1.03
# A guess that comes to be looked at more rarely than this is never worth its row.
_LEAST_CHANCE: Final = 0.05
# Of the tokens that an answer may still have, the share that is counted on: most end earlier.
_COUNTED_ON: Final = 0.5
# No guess need be surer than this.
_SURE: Final = 0.9


class Wish(NamedTuple):
    """A sequence that may have a draft: of at most `most` guesses, all of one `kind`; before the
    first its drafter takes `seconds_before`. `left`: tokens that the answer may still have."""

    most: int
    kind: int = 0
    seconds_before: float = 0.0
    left: int = 1 << 30


class Checked(NamedTuple):
    """A draft that was checked. `ended`: its drafter was not sure enough of more. `chances`: what
    it gave its guesses, where it knows."""

    sequence: int
    n_guessed: int
    n_accepted: int
    ended: bool = False
    chances: Sequence[float] = ()


class Lengths:
    """Decides for an engine's sequences, and learns from each step. Not adaptive, it always guesses
    `most`."""

    def __init__(self, most: int, *, adaptive: bool = True) -> None:
        self.acceptance = Acceptance()
        self.confidence = Confidence()
        self.times = StepTimes()
        self._most = most
        self._adaptive = adaptive
        self._kinds: dict[int, int] = {}  # of what was asked for last
        self._waited: dict[int, int] = {}  # steps without a draft
        self._pauses: dict[int, int] = {}  # steps to wait
        self._since_plain = 0
        self._n_plain = 0
        self._rate = 0.0  # tokens a second that the last drafts promised

    def choose(
        self, wishes: Mapping[int, Wish], n_decoding: int, seconds_each: float | None = 0.0
    ) -> dict[int, int]:
        """How many tokens to guess for each sequence. `n_decoding` sequences get a token of the
        step anyway; a guess of one or of all of them takes `seconds_each`, None: not known yet."""
        wishes = {
            id: wish._replace(most=min(wish.most, self._most))
            for id, wish in wishes.items()
            if wish.most > 0
        }
        self._kinds = {id: wish.kind for id, wish in wishes.items()}
        if not self._adaptive:
            return {id: wish.most for id, wish in wishes.items()}
        if not wishes or self._n_plain < _PLAIN_FIRST or self._since_plain >= _CHECK_PLAIN:
            return {}
        chosen = self._best(wishes, n_decoding, seconds_each or 0.0)
        if chosen and (seconds_each is None or not self.times.beyond(n_decoding)):
            return {id: min(length, _TRIAL) for id, length in chosen.items()}
        return chosen or self._trials(wishes, n_decoding, seconds_each or 0.0)

    def worth(self, n_decoding: int, n_guesses: int, seconds_each: float) -> Worth | None:
        """How sure the guesses of a step must be, `n_guesses` of them at most, each of which takes
        `seconds_each` to make; None: as many as may be."""
        plain = self.times.of(n_decoding)
        if not self._adaptive or not plain or not n_guesses:
            return None
        rows = max(self.times.hoped(n_decoding + n_guesses) - plain, 0.0) / n_guesses
        rate = max(self._rate, n_decoding / plain)
        row, more = rate * rows, rate * (rows + seconds_each)
        return Worth(self.confidence, min(row, _SURE), min(more, _SURE))

    def accepted(self, checked: Iterable[Checked]) -> None:
        """Drafts were checked."""
        for draft in checked:
            kind = self._kinds.get(draft.sequence, 0)
            n_guessed, n_accepted = draft.n_guessed, draft.n_accepted
            self.acceptance.note(draft.sequence, kind, n_guessed, n_accepted, ended=draft.ended)
            for place, chance in enumerate(draft.chances[: n_accepted + 1]):
                self.confidence.note(chance, place < n_accepted)

    def took(self, rows: int, seconds: float, *, plain: bool) -> None:
        """A step of decoding alone, `plain` or with drafts, took so long, drafting aside."""
        self.times.note(rows, seconds)
        self._since_plain = 0 if plain else self._since_plain + 1
        self._n_plain += plain

    def plain_seconds(self, n_decoding: int, n_tokens: int) -> float:
        """What so many tokens would have taken without drafts; 0 while it is not known."""
        return self.times.of(n_decoding) * n_tokens / n_decoding if n_decoding else 0.0

    def forget(self, sequence: int) -> None:
        """The sequence is over."""
        self.acceptance.forget(sequence)
        for notes in (self._pauses, self._waited, self._kinds):
            notes.pop(sequence, None)

    def _best(
        self, wishes: Mapping[int, Wish], n_decoding: int, seconds_each: float
    ) -> dict[int, int]:
        """The lengths that promise most; empty if none promises enough."""
        order, rate = self._order(wishes, n_decoding, seconds_each)
        plain = n_decoding / self.times.of(n_decoding)
        if rate <= _MARGIN * plain:
            return {}
        chosen: dict[int, int] = {}
        for id in order:
            chosen[id] = chosen.get(id, 0) + 1
        # What has to be done first must be won back over the rest of the answer.
        share = n_decoding * (1 / plain - 1 / rate)  # seconds won by each token of one sequence
        for id in list(chosen):
            wish = wishes[id]
            if wish.seconds_before > _COUNTED_ON * min(wish.left, 1 << 12) * share:
                del chosen[id]
        for id in chosen:
            self._waited[id] = 0
        self._rate = rate
        return chosen

    def _order(
        self, wishes: Mapping[int, Wish], n_decoding: int, seconds_each: float
    ) -> tuple[list[int], float]:
        """Whose guesses to add, one after the other, and the tokens a second that come of it."""
        chances = {
            id: self.acceptance.chances(id, wish.kind, wish.most) for id, wish in wishes.items()
        }
        made = {id: self.acceptance.made(wish.kind, wish.most) for id, wish in wishes.items()}
        # By how likely each next guess is to be looked at and right.
        heap = [(-chance[0], id, 0) for id, chance in chances.items()]
        heapq.heapify(heap)
        tokens, rows, rounds = float(n_decoding), float(n_decoding), 0.0
        drafting = dict.fromkeys(wishes, 0.0)  # guesses that will be made for each
        best_rate, best_size = tokens / self.times.of(n_decoding), 0
        order: list[int] = []
        while heap:
            negative, id, place = heapq.heappop(heap)
            if -negative < _LEAST_CHANCE:
                break
            order.append(id)
            tokens -= negative
            rows += made[id][place]
            drafting[id] += made[id][place]
            rounds = max(rounds, drafting[id])
            rate = tokens / (self.times.hoped(math.ceil(rows)) + rounds * seconds_each)
            if rate > best_rate:
                best_rate, best_size = rate, len(order)
            if place + 1 < wishes[id].most:
                heapq.heappush(heap, (negative * chances[id][place + 1], id, place + 1))
        return order[:best_size], best_rate

    def _trials(
        self, wishes: Mapping[int, Wish], n_decoding: int, seconds_each: float
    ) -> dict[int, int]:
        """A short draft for one whose pause is over."""
        plain = self.times.of(n_decoding)
        rows = self.times.of(n_decoding + _TRIAL) - plain
        for id, wish in wishes.items():
            waited = self._waited[id] = self._waited.get(id, 0) + 1
            cost = max(rows, 0.0) + _TRIAL * seconds_each + wish.seconds_before
            pause = max(self._pauses.get(id, _FIRST_PAUSE), math.ceil(cost / plain / _TRIAL_SHARE))
            if waited > pause:
                self._waited[id] = 0
                self._pauses[id] = min(2 * self._pauses.get(id, _FIRST_PAUSE), _LAST_PAUSE)
                return {id: min(wish.most, _TRIAL)}
        return {}
