"""Speculating: what the engine has to do with drafts.

    ask -> plan -> draft -> the step checks them -> learn

`ask` says before a plan how far to look ahead, `draft` puts guesses where the plan has room, and
`learn` takes note of what became of them, and of the time it took.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Any, Final

from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges, Phases, RoundRecord
from pellucid.engine.choosing import Job
from pellucid.scheduling import Sequence
from pellucid.speculation.confidence import Worth
from pellucid.speculation.drafter import Ask, Drafter, Guess, Outlook
from pellucid.speculation.lengths import Checked, Lengths, Wish

Drafts = dict[int, tuple[Guess, ...]]

# What a grammar forces is a kind of its own, nearly always right: a model may write it otherwise.
# Text that matched for long is looked up in its place, since it goes on after what is forced.
_FORCED_KIND: Final = -1
_FORCED_HOPES: Final = (0.9,) * 5
_SURER: Final = 0.95
# Steps for which nobody looked are timed now and then, to know the machine's pace.
_TIMED: Final = 4
# How far one measurement moves what taking note of a step's drafts takes.
_RATE: Final = 0.1


@dataclass(slots=True)
class SpeculationCounts:
    """What speculation did since the engine began: drafts, the tokens guessed in them and those
    accepted, both also by place in the draft; seconds that drafting took, and seconds won: what
    the same tokens would have taken without drafts, less what they took."""

    drafts: int = 0
    guessed: int = 0
    accepted: int = 0
    guessed_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    draft_seconds: float = 0.0
    seconds_won: float = 0.0

    def note(self, one: RoundRecord) -> None:
        self.drafts += 1
        self.guessed += len(one.draft)
        self.accepted += one.n_accepted
        new = len(one.draft) - len(self.guessed_at)
        self.accepted_at += [0] * new
        self.guessed_at += [0] * new
        for place in range(len(one.draft)):
            self.guessed_at[place] += 1
            self.accepted_at[place] += place < one.n_accepted


class Speculation:
    """Drafts of an engine's sequences: made by `drafter`, as long as `lengths` says. `rejecting`:
    they are checked by rejection sampling. `told` is what is said of it to who asks."""

    def __init__(
        self,
        drafter: Drafter,
        lengths: Lengths,
        *,
        rejecting: bool = False,
        told: dict[str, Any] | None = None,
    ) -> None:
        self.rejecting = rejecting
        self.told = told or {}
        self.counts = SpeculationCounts()
        self._drafter = drafter
        self._lengths = lengths
        self._asked: set[int] = set()  # sequences that guesses are made for in this step
        self._over: list[int] = []  # those of them that ended in it
        self._ended: set[int] = set()  # sequences whose last draft ended of its own accord
        self._chances: dict[int, list[float]] = {}  # of the guesses of the last drafts
        self._forced: dict[int, tuple[int, ...]] = {}  # what grammars leave no choice of
        self._guessing = True  # whether guesses may be made for any sequence in decode
        self._looked: list[int] = []  # sequences of which it was asked what could be guessed
        self._asking = 0.0  # seconds that this took
        self._untimed = _TIMED  # steps since one was
        # Of steps without drafts, not on any account yet: tokens given, and seconds of looking.
        self._given: dict[int, int] = {}
        self._looking: dict[int, float] = {}
        self._learning = 0.0  # and of a `learn` with drafts

    def ask(self, decoding: Collection[Sequence], jobs: Mapping[int, Job]) -> dict[int, int]:
        """For how many guesses the next plan is to leave room, by sequences in decode."""
        begin = time.perf_counter()
        drafter, lengths, n_decoding = self._drafter, self._lengths, len(decoding)
        self._settle(jobs)  # what an interrupted step left
        self._looked, self._guessing = looked, guessing = [], False
        if not lengths.judged(n_decoding):
            self._enter()
            lengths.begin(n_decoding, drafter.seconds_each(n_decoding))
        wishes: dict[int, Wish] = {}
        for sequence in decoding:
            id = sequence.id
            job = jobs.get(id)
            if job is None or not job.answer.speculates:
                continue
            guessing = True
            if not lengths.may(id):
                continue
            looked.append(id)
            most, kind, before, hopes = self._outlook(job)
            if most and not lengths.dull(id, kind):
                left = sequence.n_prompt + sequence.max_tokens - len(sequence.tokens)
                # The last token needs no guess: it comes of the check.
                wishes[id] = Wish(min(most, left - 1), kind, before, left, hopes)
        self._guessing = guessing
        wanted: dict[int, int] = {}
        if wishes:
            self._enter()
            made = any(id not in self._forced for id in wishes)
            each = drafter.seconds_each(n_decoding) if made else 0.0
            wanted = lengths.choose(wishes, n_decoding, each)
        self._asking = time.perf_counter() - begin
        return wanted

    def draft(
        self, plan: Plan, changes: PageChanges, jobs: Mapping[int, Job]
    ) -> tuple[Plan, Drafts]:
        """The plan with drafts where it has room, and these drafts."""
        self._drafter.observe(plan, changes)
        if not plan.room:
            return plan, {}
        asks = self._asks(plan, jobs)
        self._asked = {ask.sequence for ask in asks}
        drafts: Drafts = {}
        for ask, guessed in self._guesses(asks):
            if len(guessed) < ask.n_tokens:
                self._ended.add(ask.sequence)
            tokens = _tokens(guessed[: ask.n_tokens])
            n_kept = len(tokens)
            if ask.sequence not in self._forced:
                n_kept = len(jobs[ask.sequence].answer.possible(tokens))
            if self.rejecting and guessed and guessed[0].drawn_from is not None:
                n_kept += 1  # to leave a guess out for what it is would favour the others
            if draft := guessed[: min(n_kept, ask.n_tokens)]:
                drafts[ask.sequence] = draft
                self._chances[ask.sequence] = [x.chance for x in draft if x.chance is not None]
                if len(draft) < len(guessed):  # cut off by its form
                    self._ended.discard(ask.sequence)
        if not drafts:
            return plan, drafts
        return plan.with_drafts({id: _tokens(draft) for id, draft in drafts.items()}), drafts

    def learn(
        self,
        plan: Plan,
        rounds: Tokens[RoundRecord],
        tokens: Mapping[int, Tokens[int]],
        jobs: Mapping[int, Job],
        seconds: Phases,
    ) -> None:
        """The step was applied, and gave `tokens`."""
        begin = time.perf_counter()
        lengths, asked = self._lengths, self._asked
        looked, self._looked = self._looked, []
        if not (rounds or asked or self._guessing):
            return
        for id, tokens_given in tokens.items():
            if id in jobs or id in asked:
                self._given[id] = self._given.get(id, 0) + len(tokens_given)
        self._untimed += 1
        timed = looked or lengths.watching or self._untimed >= _TIMED
        if not (rounds or asked or timed):
            return
        self._untimed, apart = 0, 0.0
        if rounds or asked:
            self._enter()
            apart = self._learn_drafts(len(plan.spans), rounds, seconds)
        self._settle(jobs)
        if plan.n_tokens != plan.n_logits:  # prompts, too: its time says nothing of drafts
            return
        whole = sum(seconds)
        if not rounds:
            # Without drafts nobody would have asked for any.
            for id in looked:
                if id in jobs:
                    each = min(self._asking / len(looked), lengths.longest_look)
                    self._looking[id] = self._looking.get(id, 0.0) + each
            lengths.took(plan.n_tokens, whole - seconds.draft - self._asking, plain=True)
            return
        plain = lengths.plain_seconds(len(plan.spans), sum(map(len, tokens.values())))
        self.counts.seconds_won += plain - whole if plain else 0.0
        lengths.took(plan.n_tokens, whole - apart + self._learning, plain=False)
        self._learning += _RATE * (time.perf_counter() - begin - self._learning)

    def _enter(self) -> None:
        """Onto accounts, what steps without drafts gave and took. It need not be each time."""
        for id, n_tokens in self._given.items():
            self._lengths.earned(id, n_tokens)
        for id, seconds in self._looking.items():
            self._lengths.asked(id, seconds)
        self._given.clear()
        self._looking.clear()

    def _learn_drafts(self, n_decoding: int, rounds: Tokens[RoundRecord], seconds: Phases) -> float:
        """Returns the seconds that making them took, where they count apart from the step."""
        for one in rounds:
            self.counts.note(one)
        if not rounds:  # what was guessed nobody checked
            self.counts.seconds_won -= seconds.draft
        self.counts.draft_seconds += seconds.draft
        if not self._asked:
            return 0.0
        # What takes no time of its own to make counts with the step.
        apart = 0.0 if self._drafter.seconds_each(n_decoding) == 0.0 else seconds.draft
        self._lengths.drafted(apart)
        self._lengths.accepted(self._checked(rounds))
        return apart

    def _outlook(self, job: Job) -> Outlook:
        """What could be guessed of it: by the drafter, or what its grammar forces."""
        sequence = job.sequence
        outlook = self._drafter.outlook(sequence.id, sequence.tokens, sequence.pages)
        if outlook.hopes and outlook.hopes[0] >= _SURER:
            return outlook
        forced = job.answer.forced()
        if not forced:
            return outlook
        self._forced[sequence.id] = forced
        return Outlook(len(forced), _FORCED_KIND, hopes=_FORCED_HOPES)

    def _guesses(self, asks: list[Ask]) -> list[tuple[Ask, tuple[Guess, ...]]]:
        """Of each, what is forced or what the drafter makes."""
        others = [ask for ask in asks if ask.sequence not in self._forced]
        found = list(zip(others, self._drafter.draft(others), strict=True)) if others else []
        for ask in asks:
            if tokens := self._forced.get(ask.sequence):
                found.append((ask, tuple([Guess(token) for token in tokens[: ask.n_tokens]])))
        return found

    def _asks(self, plan: Plan, jobs: Mapping[int, Job]) -> list[Ask]:
        room = {id: count for id, count in plan.room.items() if id in jobs}
        n_decoding = sum(span.n_logits for span in plan.spans)
        each = self._drafter.seconds_each(len(room)) or 0.0
        worth = self._lengths.worth(n_decoding, sum(room.values()), each / max(len(room), 1))
        return [_ask(jobs[id], count, worth) for id, count in room.items()]

    def _settle(self, jobs: Mapping[int, Job]) -> None:
        """What stands of each sequence with guesses, those too of which none came to be checked;
        and who ended is forgotten, now that nothing more is learnt of it."""
        if not (self._asked or self._forced):
            return
        for id in self._asked:
            job = jobs.get(id)
            if job is not None:
                self._drafter.accepted(id, job.sequence.computed, job.sequence.pages)
        over, self._over = self._over, []
        self._asked, self._ended, self._chances, self._forced = set(), set(), {}, {}
        for id in over:
            self.forget(id)

    def _checked(self, rounds: Tokens[RoundRecord]) -> list[Checked]:
        """What became of each draft, and of each that came to none."""
        checked = [
            Checked(
                one.sequence,
                len(one.draft),
                one.n_accepted,
                one.sequence in self._ended,
                self._chances.get(one.sequence, ()),
            )
            for one in rounds
        ]
        drafted = {one.sequence for one in rounds}
        return checked + [Checked(id, 0, 0) for id in self._asked if id not in drafted]

    def stats(self) -> dict[str, Any]:
        """What was counted, as fields of `EngineStats`; for any thread."""
        counts = self.counts
        return {
            "drafts": counts.drafts,
            "draft_tokens": counts.guessed,
            "accepted_tokens": counts.accepted,
            "guessed_at": tuple(counts.guessed_at),
            "accepted_at": tuple(counts.accepted_at),
            "draft_seconds": counts.draft_seconds,
            "seconds_won": counts.seconds_won,
        }

    def forget(self, sequence: int) -> None:
        """It is over."""
        self._looked = [id for id in self._looked if id != sequence]
        self._given.pop(sequence, None)
        self._looking.pop(sequence, None)
        if sequence in self._asked:
            self._over.append(sequence)
            return
        self._drafter.forget(sequence)
        self._lengths.forget(sequence)


def rounds_of(drafts: Drafts, tokens: Mapping[int, Tokens[int]]) -> tuple[RoundRecord, ...]:
    """What became of each draft, `tokens` being what its sequence got of the step."""
    rounds: list[RoundRecord] = []
    for id, guesses in drafts.items():
        draft = _tokens(guesses)
        rounds.append(RoundRecord(id, draft, _n_equal(draft, tokens.get(id, ()))))
    return tuple(rounds)


def _tokens(draft: Tokens[Guess]) -> tuple[int, ...]:
    return tuple([guess.token for guess in draft])


def _n_equal(draft: tuple[int, ...], tokens: Tokens[int]) -> int:
    """How many of the first tokens are those guessed."""
    pairs = enumerate(zip(draft, tokens, strict=False))
    return next((i for i, (guess, token) in pairs if guess != token), min(len(draft), len(tokens)))


def _ask(job: Job, n_tokens: int, worth: Worth | None) -> Ask:
    sequence = job.sequence
    draw = job.answer.draw(masked=False)
    return Ask(sequence.id, sequence.tokens, n_tokens, sequence.pages, draw, worth)
