"""One replica: the very scheduler and page tables that serve, with a cost model for the kernels."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Tokens
from typing import Final

from pellucid.core.plan import Plan
from pellucid.core.record import SpanRecord
from pellucid.scheduling import Scheduler, Sequence
from pellucid.simulate.draws import Draws, draws, mix
from pellucid.simulate.setup import Setup
from pellucid.simulate.tally import Tally

_PACE, _ACCEPTED = 16, 17  # streams of draws, beside those of the traffic
_LOOK_EACH: Final = 8  # of so many steps, what the time of one goes to is looked at


class Replica:
    """Requests are added at any time and looked at before the next plan, as an engine's inbox is.
    `begin` plans a step and says when it ends; `end` applies it."""

    def __init__(self, setup: Setup, number: int, seed: int, tally: Tally) -> None:
        self.scheduler = Scheduler(setup.limits, _digest)
        self.load = 0
        self._setup = setup
        self._tally = tally
        self._inbox: deque[Sequence] = deque()
        self._plan: Plan | None = None
        self._spans: list[SpanRecord] = []
        self._alive: dict[int, Sequence] = {}
        self._steps = 0
        # Each replica keeps its own pace.
        self._played = setup.pace.played(draws(seed, _PACE + 32 * (number + 1)))
        self._luck: Draws = draws(seed, _ACCEPTED + 32 * (number + 1))
        self._began = 0.0

    @property
    def busy(self) -> bool:
        """Whether a step is under way."""
        return self._plan is not None

    def cached(self, asked: Sequence) -> int:
        """Tokens of a prompt that its prefix cache holds."""
        return self.scheduler.cached_tokens(asked)

    def add(self, sequence: Sequence) -> None:
        self._inbox.append(sequence)
        self.load += 1

    def begin(self, now: float) -> float | None:
        """Plan a step; when it will end, None if there is nothing to do."""
        scheduler = self.scheduler
        while self._inbox:
            sequence = self._inbox.popleft()
            scheduler.add(sequence)
            self._alive[sequence.id] = sequence
        if scheduler.idle:
            return None
        guessing = self._setup.guessing
        if guessing is None:
            plan = scheduler.plan()
        else:
            plan = scheduler.plan({x.id: guessing.tokens for x in scheduler.decoding})
            if plan.room:
                plan = plan.with_drafts({id: (0,) * room for id, room in plan.room.items()})
        self._plan, self._began = plan, now
        # Built by way of the base: there are hundreds a step.
        new = tuple.__new__
        self._spans = [
            new(SpanRecord, (id, start, len(tokens), n_logits))
            for id, start, tokens, _, n_logits in plan.spans
        ]
        return now + self._seconds(plan, now)

    def end(self, now: float) -> int:
        """The step is done: tokens are known, and who has all that it asked for is over. Returns
        how many are."""
        plan = self._plan
        assert plan is not None
        self._plan = None
        tokens = self._tokens(plan)
        self._tally.step(self, self._spans, now - self._began, tokens)
        self.scheduler.apply(plan, tokens)
        alive, tally, before = self._alive, self._tally, self.load
        tally.answered(tokens, now)
        for id in tokens:
            sequence = alive[id]
            if len(sequence.tokens) >= sequence.n_prompt + sequence.max_tokens:
                self.scheduler.finish(sequence)
                del alive[id]
                self.load -= 1
                tally.over(sequence, now)
        return before - self.load

    def _seconds(self, plan: Plan, now: float) -> float:
        setup, spans = self._setup, self._spans
        seconds = setup.times.seconds(spans)
        if setup.guessing is not None and plan.room:
            longest = max(plan.room.values())
            seconds += setup.times.draft_seconds(spans, longest, setup.guessing.size)
        self._steps += 1
        # Chosen as if at random: a stride could keep time with the traffic.
        if mix(self._steps) % _LOOK_EACH == 0:
            self._tally.look(setup.times, spans, self.scheduler, setup.limits)
        return self._played.seconds(now, seconds)

    def _tokens(self, plan: Plan) -> dict[int, tuple[int, ...]]:
        """What comes of the step: a token of its own for each sequence, more where guesses were
        accepted."""
        if not plan.room:
            return {span[0]: (span[0] + 1,) for span in self._spans if span[3]}
        found: dict[int, tuple[int, ...]] = {}
        guessing = self._setup.guessing
        assert guessing is not None
        for id, _, _, n_logits in self._spans:
            if n_logits:
                right, room = 0, plan.room.get(id, 0)
                luck = self._luck.at(self._steps * 4096 + id)
                while right < room and luck.random() < guessing.acceptance:
                    right += 1
                found[id] = (id + 1,) * (right + 1)
        return found


def _digest(parent: bytes, tokens: Tokens[int]) -> bytes:
    """Of a page: what is the same has the same one, in every process. Numbers hash alike in all,
    and where two collide the prefix cache looks at the tokens."""
    return hash((int.from_bytes(parent, "little"), *tokens)).to_bytes(8, "little", signed=True)
