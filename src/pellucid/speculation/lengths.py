"""Lengths: how many tokens to guess for each sequence, so that most tokens come of a second.

A step with drafts gives each sequence the tokens accepted and one more. It takes what a step of so
many rows takes, and the drafting. With the chance of each guess (`Acceptance`) and the time of each
number of rows (`StepTimes`) the best lengths follow: guesses are added, the likeliest first, and
the sum that gives most tokens a second is taken. That may be none.

A drafter that knows how sure it is need not make all guesses: `worth` says how sure is enough, at
the tokens a second that are hoped for.

Estimates may be wrong, so that no draft costs more than what the sequence's account holds
(`Accounts`): however wrong all guesses are, little is lost beside plain decoding.

What is not tried is not known. So a sequence without drafts is given a short one now and then, more
rarely each time that it does not pay; and a step without drafts is run now and then where all have
some, to see what it takes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pellucid.speculation.acceptance import Acceptance
from pellucid.speculation.accounts import Accounts
from pellucid.speculation.aftermath import Aftermath
from pellucid.speculation.confidence import Confidence, Worth
from pellucid.speculation.timing import StepTimes

# Steps without a draft before a sequence is given one to see; doubled each time that it shows no
# gain.
_FIRST_PAUSE: Final = 24
_LAST_PAUSE: Final = 768
_TRIAL: Final = 2  # guesses of such a draft, and of the first of all
# Steps with drafts between two without: a few at first, and twice as many each time; and steps
# without before the first draft of all.
_CHECK_FIRST: Final = 4
_CHECK_LAST: Final = 64
_DEAR: Final = 1.15  # times what such a step took, believed: the next one comes soon
_PLAIN_FIRST: Final = 2
# What a draft must promise to be made: estimates are rough, and a plain step is certain.
_MARGIN: Final = 1.03
# A guess that comes to be looked at more rarely than this is never worth its row.
_LEAST_CHANCE: Final = 0.05
# Of the tokens that an answer may still have, the share that is counted on: most end earlier.
_COUNTED_ON: Final = 0.5
# No guess need be surer than this.
_SURE: Final = 0.9
# A draft may turn out to cost so many times what was expected; more is laid to something else. And
# so much is what a single guess costs at most, in tokens' times.
_UNEXPECTED: Final = 2.0
# What a step with drafts took more than was believed, in tokens' times: beyond this, it was held up
# by something else.
_OVERRUN: Final = 1.0
_UNDERRUN: Final = 0.5  # and the share of it that may turn out not to have been needed
# A look that takes more than this, in tokens' times, reads a prompt: little beside computing it.
_LOOK_AT_MOST: Final = 0.05
_LEAST_AT_MOST: Final = 1.2  # less than an account begins with, so that each may try
# Steps for which a judgement holds: what a guess costs, and that one of a kind is not worth it.
_JUDGED_FOR: Final = 32
# After so many steps without a draft a sequence is looked at in every second one, or every fourth.
_SECOND_AFTER: Final = 32
_FOURTH_AFTER: Final = 96


class Wish(NamedTuple):
    """A sequence that may have a draft: of at most `most` guesses, all of one `kind`. `hopes`: how
    likely they are right, by place, while nothing is known of them. Before the first its drafter
    takes `seconds_before`. `left`: tokens that the answer may still have."""

    most: int
    kind: int = 0
    seconds_before: float = 0.0
    left: int = 1 << 30
    hopes: tuple[float, ...] = ()


class Checked(NamedTuple):
    """A draft that was checked; of no guesses where none came to be. `ended`: its drafter was not
    sure enough of more. `chances`: what it gave its guesses, where it knows."""

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
        self.accounts = Accounts()
        self._most = most
        self._adaptive = adaptive
        self._kinds: dict[int, int] = {}  # of what was asked for last
        self._idle: dict[int, int] = {}  # steps without a draft
        self._waited: dict[int, int] = {}  # those of them in which one was possible
        self._pauses: dict[int, int] = {}  # steps to wait
        self._since_plain = 0
        self._check_after = _CHECK_FIRST
        self._n_plain = 0
        self._rate = 0.0  # tokens a second that the last drafts promised
        self._n_decoding = 1
        self._seconds_each = 0.0
        self._level_drafted = 0.0  # of steps when guesses were made last
        self._least = 0.0  # what a draft of one guess costs, in tokens' times
        self._judged = _JUDGED_FOR  # steps since that was worked out
        self.longest_look = 0.0  # seconds of one that a sequence pays for
        self._dull: dict[int, set[int]] = {}  # kinds of guesses that are not worth their rows
        self._expected: dict[int, float] = {}  # what each draft was expected to cost
        self._rounds = 0  # guesses of the longest of them
        self._believed = 0.0  # what the rows of the drafts checked last were paid for with
        self._drafted: tuple[int, ...] = ()  # who had a draft last
        self._aftermath = Aftermath()

    def judged(self, n_decoding: int) -> bool:
        """A step is to be planned, of which so many sequences get a token anyway. Whether what was
        found for one like it still holds; else `begin` must come first."""
        self._judged += 1
        return n_decoding == self._n_decoding and self._judged <= _JUDGED_FOR

    def begin(self, n_decoding: int, seconds_each: float | None = 0.0) -> None:
        """What a guess costs in such a step: what one cost in a crowd must not keep those after
        from being asked."""
        self._judged = 0
        self._dull.clear()
        self._price(n_decoding, seconds_each)

    @property
    def watching(self) -> bool:
        """Whether each plain step is to be told for now."""
        return self._aftermath.watching

    def may(self, sequence: int) -> bool:
        """Whether somebody is to look for a draft in this step: one could be afforded. The longer
        there was none, the more rarely."""
        if not self._adaptive:
            return True
        idle = self._idle[sequence] = self._idle.get(sequence, 0) + 1
        if idle > _SECOND_AFTER and idle % (2 if idle <= _FOURTH_AFTER else 4):
            return False
        return self.accounts.balance(sequence) >= self._least

    def dull(self, sequence: int, kind: int) -> bool:
        """Whether guesses of this kind were not worth their rows a few steps ago, and nothing was
        learnt of the sequence's since."""
        kinds = self._dull.get(sequence)
        if kinds is None or kind not in kinds:
            return False
        waited = self._waited[sequence] = self._waited.get(sequence, 0) + 1
        return waited <= self._pauses.get(sequence, _FIRST_PAUSE)

    def choose(
        self, wishes: Mapping[int, Wish], n_decoding: int, seconds_each: float | None = 0.0
    ) -> dict[int, int]:
        """How many tokens to guess for each sequence. `n_decoding` sequences get a token of the
        step anyway; a guess of one or of all of them takes `seconds_each`, None: not known yet."""
        pace = self._pace()
        wishes = {
            id: wish._replace(
                most=min(wish.most, self._most), seconds_before=pace * wish.seconds_before
            )
            for id, wish in wishes.items()
            if wish.most > 0
        }
        self._kinds = {id: wish.kind for id, wish in wishes.items()}
        if not self._adaptive:
            return {id: wish.most for id, wish in wishes.items()}
        if not wishes or self._n_plain < _PLAIN_FIRST or self._since_plain >= self._check_after:
            return {}
        self._price(n_decoding, seconds_each)
        chosen = self._best(wishes, n_decoding)
        if chosen and (seconds_each is None or not self.times.beyond(n_decoding)):
            chosen = {id: min(length, _TRIAL) for id, length in chosen.items()}
        chosen = self._afforded(chosen or self._trials(wishes), wishes)
        for id, wish in wishes.items():
            if id in chosen:
                self._waited[id] = self._idle[id] = 0
            else:
                self._dull.setdefault(id, set()).add(wish.kind)
        return chosen

    def worth(self, n_decoding: int, n_guesses: int, seconds_each: float) -> Worth | None:
        """How sure the guesses of a step must be, `n_guesses` of them at most, each of which takes
        `seconds_each` to make; None: as many as may be."""
        plain = self.times.of(n_decoding)
        if not self._adaptive or not plain or not n_guesses:
            return None
        rows = max(self.times.hoped(n_decoding + n_guesses) - plain, 0.0) / n_guesses
        rate = max(self._rate, n_decoding / plain)
        row, more = rate * rows, rate * (rows + self._pace() * seconds_each)
        return Worth(self.confidence, min(row, _SURE), min(more, _SURE))

    def accepted(self, checked: Iterable[Checked]) -> None:
        """Drafts of a step were checked."""
        drafts = list(checked)
        self._settle(drafts)
        for draft in drafts:
            self._dull.pop(draft.sequence, None)
            kind = self._kinds.get(draft.sequence, 0)
            n_guessed, n_accepted = draft.n_guessed, draft.n_accepted
            self.acceptance.note(draft.sequence, kind, n_guessed, n_accepted, ended=draft.ended)
            for place, chance in enumerate(draft.chances[: n_accepted + 1]):
                self.confidence.note(chance, place < n_accepted)

    def earned(self, sequence: int, n_tokens: int) -> None:
        """A sequence was given so many tokens, guessed or not."""
        self.accounts.earn(sequence, n_tokens)

    def asked(self, sequence: int, seconds: float) -> None:
        """It took so long to see that no guess for it was worth its row, in one step or more."""
        token = self._token_seconds()
        if token:
            self.accounts.settle(sequence, seconds / token, 0.0)

    def drafted(self, seconds: float) -> None:
        """Making a step's guesses took so long. More than they take as a rule, as where a model
        reads a prompt first, is on no sequence's account."""
        self._level_drafted = self.times.level
        token = self._token_seconds()
        if token:
            self.accounts.spend(max(seconds / token - self._drafting(self._rounds), 0.0))

    def took(self, rows: int, seconds: float, *, plain: bool) -> None:
        """A step of decoding alone, `plain` or with drafts, took so long, drafting aside."""
        if not plain:
            self._correct(seconds)
            self._drafted = tuple(self._expected)
            self._aftermath.drafted()
        elif self._aftermath.watching:
            seconds = self._undisturbed(rows, seconds)
        if plain and self._since_plain >= self._check_after:
            self._checked(rows, seconds)
        self.times.note(rows, seconds)
        self._since_plain = 0 if plain else self._since_plain + 1
        self._n_plain += plain

    def _checked(self, rows: int, seconds: float) -> None:
        """A plain step after many with drafts took so long. Where it took much less than they let
        one believe, the drafts were dear, and it is looked at again soon."""
        dear = self.times.of(rows) > _DEAR * seconds
        longer = _CHECK_FIRST if dear else 2 * self._check_after
        self._check_after = min(longer, _CHECK_LAST)

    def plain_seconds(self, n_decoding: int, n_tokens: int) -> float:
        """What so many tokens would have taken without drafts; 0 while it is not known."""
        return self.times.of(n_decoding) * n_tokens / n_decoding if n_decoding else 0.0

    def forget(self, sequence: int) -> None:
        """The sequence is over."""
        self.acceptance.forget(sequence)
        self.accounts.forget(sequence)
        notes: tuple[dict[int, Any], ...]
        notes = self._pauses, self._waited, self._kinds, self._expected, self._dull, self._idle
        for known in notes:
            known.pop(sequence, None)
        if sequence in self._drafted:
            self._drafted = tuple([id for id in self._drafted if id != sequence])

    def _best(self, wishes: Mapping[int, Wish], n_decoding: int) -> dict[int, int]:
        """The lengths that promise most; empty if none promises enough."""
        order, rate = self._order(wishes, n_decoding)
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
            before, left = wish.seconds_before, min(wish.left, 1 << 12)
            if before > _COUNTED_ON * left * share or before > self._bank_seconds():
                del chosen[id]
        self._rate = rate
        return chosen

    def _order(self, wishes: Mapping[int, Wish], n_decoding: int) -> tuple[list[int], float]:
        """Whose guesses to add, one after the other, and the tokens a second that come of it."""
        chances = {
            id: self.acceptance.chances(id, wish.kind, wish.most, wish.hopes)
            for id, wish in wishes.items()
        }
        made = {id: self.acceptance.made(wish.kind, wish.most) for id, wish in wishes.items()}
        # By how likely each next guess is to be looked at and right.
        heap = [(-chance[0], id, 0) for id, chance in chances.items()]
        heapq.heapify(heap)
        tokens, rows, rounds = float(n_decoding), float(n_decoding), 0.0
        drafting = dict.fromkeys(wishes, 0.0)  # guesses that will be made for each
        plain = self.times.of(n_decoding)
        best_rate, best_size = tokens / plain, 0
        after = self._aftermath.ahead * plain
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
            step = self.times.hoped(math.ceil(rows)) + rounds * self._seconds_each
            rate = tokens / (step + after)
            if rate > best_rate:
                best_rate, best_size = rate, len(order)
            if place + 1 < wishes[id].most:
                heapq.heappush(heap, (negative * chances[id][place + 1], id, place + 1))
        return order[:best_size], best_rate

    def _trials(self, wishes: Mapping[int, Wish]) -> dict[int, int]:
        """A short draft for one whose pause is over."""
        for id, wish in wishes.items():
            waited = self._waited[id] = self._waited.get(id, 0) + 1
            pause = self._pauses.get(id, _FIRST_PAUSE)
            if waited > pause and wish.seconds_before <= self._bank_seconds():
                self._pauses[id], self._waited[id] = min(2 * pause, _LAST_PAUSE), 0
                return {id: min(wish.most, _TRIAL)}
        return {}

    def _afforded(self, wanted: Mapping[int, int], wishes: Mapping[int, Wish]) -> dict[int, int]:
        """As much of each draft as the sequence's account covers if no guess is right."""
        self._expected, self._rounds = {}, 0
        afforded: dict[int, int] = {}
        for id, length in wanted.items():
            limit = self.accounts.limit(id, self._least, *wishes[id].hopes[:1])
            while length and (cost := self._cost(length)) > limit:
                length -= 1
            if length:
                afforded[id], self._expected[id] = length, cost
                self._rounds = max(self._rounds, length)
        return afforded

    def _settle(self, drafts: Sequence[Checked]) -> None:
        """What drafts cost, and what came of them."""
        total = sum(draft.n_guessed for draft in drafts)
        self._believed = self._rows(total)
        each = self._cost(total) / total if total else 0.0
        for draft in drafts:
            id, n_guessed = draft.sequence, draft.n_guessed
            # Where nothing came of drafting, or a last guess was dropped, that one was made too.
            cost = n_guessed * each + (draft.ended or not n_guessed) * self._drafting(1)
            most = _UNEXPECTED * self._expected.get(id, cost)
            self.accounts.settle(id, min(cost, most), draft.n_accepted)

    def _correct(self, seconds: float) -> None:
        """What was believed of the drafts' rows, by what their step really took."""
        token, believed = self._token_seconds(), self._believed
        if not token or not self._expected:
            return
        more = seconds / token - self._n_decoding - believed
        more = max(-_UNDERRUN * believed, min(_OVERRUN, more)) / len(self._expected)
        for id in self._expected:
            self.accounts.settle(id, more, 0.0)

    def _undisturbed(self, rows: int, seconds: float) -> float:
        """What a plain step would have taken with no draft before it, whose sequences pay for what
        it took more."""
        more = self._aftermath.more(rows, seconds)
        if more:
            for id in self._drafted:
                self.accounts.settle(id, more * rows / len(self._drafted), 0.0)
        return seconds / (1.0 + more)

    def _price(self, n_decoding: int, seconds_each: float | None) -> None:
        self._n_decoding = max(n_decoding, 1)
        self._seconds_each = self._pace() * (seconds_each or 0.0)
        self._least = min(self._cost(1), _LEAST_AT_MOST)
        self.longest_look = _LOOK_AT_MOST * self._token_seconds()

    def _cost(self, n_guesses: int) -> float:
        """Of a step's time with so many guesses beside that without: tokens' times."""
        return self._rows(n_guesses) + self._drafting(n_guesses)

    def _rows(self, n_guesses: int) -> float:
        token, n_decoding = self._token_seconds(), self._n_decoding
        if not token:
            return 0.0
        more = self.times.of(n_decoding + n_guesses) - self.times.of(n_decoding)
        return max(more, 0.0) / token

    def _pace(self) -> float:
        """How many times as long as when guesses were made last all takes now: a machine that is
        slower for a while is so for the drafter too, whose times are of then."""
        return self.times.level / self._level_drafted if self._level_drafted else 1.0

    def _drafting(self, n_guesses: int) -> float:
        token = self._token_seconds()
        return n_guesses * self._seconds_each / token if token else 0.0

    def _token_seconds(self) -> float:
        """What a token takes without drafts; 0 while it is not known."""
        return self.times.of(self._n_decoding) / self._n_decoding

    def _bank_seconds(self) -> float:
        return self.accounts.bank * self._token_seconds()
