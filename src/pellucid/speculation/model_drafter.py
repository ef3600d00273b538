"""Drafts by a model: a smaller one, or the first layers of the one that is guessed for.

All sequences that draft in a step do so together, a token each at a time. A guess is drawn as its
request would draw it, from the draft model's scores: by the same parameters, penalties and bias,
and with the same random number, so that where the two models agree, so do their draws. Where
guesses are to be rejected by chance they have a random number of their own, and are handed over
with what they were drawn from.

A small model has a cache of its own, on the same pages (`Filled`); before it guesses it computes
what it has not seen of the sequence. The first layers of the model itself (early exit; Elhoushi et
al. 2024) need none: keys and values of those layers are the model's own, and what a draft writes
there is what its check writes again.

The head of a small model is much of it: a third of the bytes read for each guess where 150,000
tokens share 900 features. Vocabularies of merges number their tokens by how common they are, so a
head of the first rows alone guesses nearly all that is guessed right (Zhao et al. 2025, "FR-Spec").
A text that has many tokens beyond it is guessed by the whole head.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import TokenChoice
from pellucid.core.params import SamplingParams
from pellucid.core.plan import Plan, Span
from pellucid.core.record import PageChanges
from pellucid.models.registry import Model
from pellucid.sampling import Draw, Sampler
from pellucid.speculation.drafter import Ask, Guess, Outlook
from pellucid.speculation.filled import Filled
from pellucid.speculation.rejection import drawn_guess
from pellucid.speculation.timing import StepTimes

Float32 = NDArray[np.float32]

# How far one measurement moves what a position takes that is caught up with.
_RATE: Final = 0.3
# Of the last so many tokens of the texts, the share beyond a short head's that it is used up to.
_LOOK_BACK: Final = 64
_BEYOND: Final = 1 / 16
# Fewer positions to catch up with take next to nothing beside a guess.
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class Head:
    """A model that guesses, and what draws from its `n_rows` scores. `times`: of a guess, by the
    sequences that are guessed for."""

    model: Model
    sampler: Sampler
    n_rows: int
    times: StepTimes = field(default_factory=StepTimes)


@dataclass(slots=True)
class _Writing:
    """A draft in the making. `survives`: how likely all its guesses are right."""

    ask: Ask
    draw: Draw
    guesses: list[Guess] = field(default_factory=list)
    survives: float = 1.0
    done: bool = False

    def add(self, guess: Guess, *, may_drop: bool) -> None:
        """One more guess, unless it is not even worth its row; the first is kept."""
        worth = self.ask.worth
        if worth is not None and guess.chance is not None:
            self.survives = worth.after(self.survives, guess.chance)
            self.done = not worth.goes_on(self.survives)
            if may_drop and self.guesses and self.survives < worth.row:
                return
        self.guesses.append(guess)
        self.draw.history.append(guess.token)
        self.draw = self.draw._replace(position=self.draw.position + 1)
        self.done |= len(self.guesses) >= self.ask.n_tokens


class ModelDrafter:
    """Guesses by `head`'s model on `cache`, whose pages have `page_size` positions.

    `short` is the same model with the first rows of its head. `filled` is how far the cache has
    come; None where it is the guessed-for model's own, and always complete. At most `catch_up`
    positions are computed in one step to catch up.
    """

    def __init__(
        self,
        head: Head,
        cache: object,
        page_size: int,
        catch_up: int,
        filled: Filled | None = None,
        *,
        short: Head | None = None,
        rejecting: bool = False,
    ) -> None:
        self._whole = head
        self._short = short
        self._head = short or head  # the one that guessed last
        self._cache = cache
        self._filled = filled
        self._page_size = page_size
        self._rejecting = rejecting
        self._catch_up = catch_up
        self._seconds_behind = 0.0  # of each position caught up with
        self._params: dict[int, SamplingParams] = {}
        self._reads: dict[int, bool] = {}  # whether the model has a row for all of a text

    def seconds_each(self, n_sequences: int) -> float | None:
        times = self._head.times
        return times.of(n_sequences) if times.known else None

    def observe(self, plan: Plan, changes: PageChanges) -> None:
        if self._filled is None:
            return
        self._filled.observe(plan, changes)
        if plan.copies:
            self._whole.model.ops.copy_pages(self._cache, plan.copies)

    def outlook(self, sequence: int, tokens: Sequence[int], pages: Sequence[int]) -> Outlook:
        if sequence not in self._reads:
            # A prompt may name rows that pad the table of the other model; no answer has any.
            self._reads[sequence] = max(tokens) < self._whole.model.spec.vocab_size
        if not self._reads[sequence]:
            return Outlook(0)
        behind = self._behind(tokens, pages)
        room = self._whole.model.spec.context_length - len(tokens) + 1
        return Outlook(max(room, 0), 0, behind * self._seconds_behind if behind > 1 else 0.0)

    def draft(self, asks: Sequence[Ask]) -> list[tuple[Guess, ...]]:
        self._head = self._head_for(asks)
        writing = [_Writing(ask, self._draw(ask)) for ask in asks]
        active = self._start(writing)
        while active:
            self._step(
                active, [self._span(x, len(x.ask.tokens) + len(x.guesses) - 1) for x in active]
            )
            active = [x for x in active if not x.done]
        return [tuple(x.guesses) for x in writing]

    def accepted(self, sequence: int, computed: int, pages: Sequence[int]) -> None:
        if self._filled is not None:
            self._filled.cut(pages, computed)

    def forget(self, sequence: int) -> None:
        for known in (self._params, self._reads):
            known.pop(sequence, None)

    def _head_for(self, asks: Sequence[Ask]) -> Head:
        """The short head, unless these texts have many tokens that it lacks, or a choice depends on
        tokens by name: some of them may be such."""
        short = self._short
        if short is None or not all(ask.draw.params.by_scores_alone for ask in asks):
            return self._whole
        tokens = [token for ask in asks for token in ask.tokens[-_LOOK_BACK:]]
        beyond = sum(token >= short.n_rows for token in tokens)
        return short if beyond <= _BEYOND * len(tokens) else self._whole

    def _behind(self, tokens: Sequence[int], pages: Sequence[int]) -> int:
        """Known positions before the last that are to be computed first."""
        if self._filled is None:
            return 0
        last = len(tokens) - 1
        return last - self._filled.first_missing(pages, last)

    def _start(self, writing: list[_Writing]) -> list[_Writing]:
        """The first guess of each that has caught up, or does so within the step's tokens; the
        others catch up as far as these go. Returns those that go on."""
        left = self._catch_up
        spans: list[Span] = []
        started: list[_Writing] = []
        for one in writing:
            start = len(one.ask.tokens) - 1 - self._behind(one.ask.tokens, one.ask.pages)
            span = self._span(one, start)
            if len(span.tokens) - 1 > left:
                if left > 0:
                    spans.append(span._replace(tokens=span.tokens[:left], n_logits=0))
                left = 0
                continue
            left -= len(span.tokens) - 1
            spans.append(span)
            started.append(one)
        self._step(started, spans)
        return [x for x in started if not x.done]

    def _span(self, one: _Writing, start: int) -> Span:
        """What is known or guessed from position `start` on."""
        ask, n_known = one.ask, len(one.ask.tokens)
        guesses = [guess.token for guess in one.guesses[max(start - n_known, 0) :]]
        tokens = (*ask.tokens[start:], *guesses)
        return Span(ask.sequence, start, tokens, tuple(ask.pages), 1)

    def _step(self, writing: list[_Writing], spans: list[Span]) -> None:
        """Compute `spans`, in the order of `writing` those with logits, and a guess for each."""
        begin = time.perf_counter()
        plan = Plan(tuple(spans), self._page_size)
        model = self._head.model
        logits = model.ops.to_numpy(model.forward(plan, self._cache))
        if self._filled is not None:
            for span in spans:
                self._filled.wrote(span.pages, span.start, span.end)
        for one, guess in zip(writing, self._guesses(logits, writing), strict=True):
            if guess is None:
                one.done = True
            else:
                one.add(guess, may_drop=not self._rejecting)
        self._note(plan.n_tokens, len(writing), time.perf_counter() - begin)

    def _guesses(self, logits: Float32, writing: list[_Writing]) -> list[Guess | None]:
        """A guess for each; None where no token is left to choose: let the check find that out."""
        sampler, draws = self._head.sampler, [one.draw for one in writing]
        if not self._rejecting:
            choices = sampler.choose_rows(logits, range(len(draws)), draws)
            return [
                Guess(x.token_id, chance=_chance(logits[row], x.token_id))
                if isinstance(x, TokenChoice)
                else None
                for row, x in enumerate(choices)
            ]
        found: list[Guess | None] = []
        for row, draw in enumerate(draws):
            try:
                found.append(drawn_guess(sampler, logits[row], draw))
            except PellucidError:
                found.append(None)
        return found

    def _note(self, rows: int, n_guesses: int, seconds: float) -> None:
        times, behind = self._head.times, rows - n_guesses
        if behind < _FEW:
            if n_guesses:
                times.note(n_guesses, seconds)
            return
        each = max(seconds - times.of(max(n_guesses, 1)), 0.0) / behind
        rate = _RATE if self._seconds_behind else 1.0
        self._seconds_behind += rate * (each - self._seconds_behind)

    def _draw(self, ask: Ask) -> Draw:
        """How the first guess is drawn: as the choice, but from this model's scores."""
        params = self._params.get(ask.sequence)
        if params is None:
            params = self._params[ask.sequence] = copy.copy(ask.draw.params)
            params.logprobs = None
            n_rows = self._whole.n_rows
            params.logit_bias = {k: v for k, v in params.logit_bias.items() if k < n_rows}
        return ask.draw._replace(params=params, history=ask.draw.history.fork())


def _chance(logits: Float32, token: int) -> float:
    """The probability of `token`; its scores are float32 [vocabulary]."""
    return 1.0 / max(float(np.exp(logits - logits[token]).sum()), 1.0)
