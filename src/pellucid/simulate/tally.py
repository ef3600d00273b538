"""Tally: what a run saw, counted as it goes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pellucid.core.record import SpanRecord
from pellucid.scheduling import Limits, Scheduler, Sequence
from pellucid.simulate.times import StepTime

if TYPE_CHECKING:
    from pellucid.simulate.replica import Replica

PLACES, TOKENS, PAGES = "places", "tokens of a step", "pages"


class Tally:
    """Of one run of `count` requests. They are numbered as they come; those from `first` on are
    looked at, the ones before warm the engine up.

    first_token, ended: seconds, by request; 0 while it has not come. gaps: seconds between two
    tokens of an answer. Counts of steps are of all that end in the `window`; None is from the end
    of request number `first` (in the order of ends) to when as many are left as were before it.
    """

    def __init__(self, count: int, first: int, window: tuple[float, float] | None) -> None:
        self.first_token = array("d", bytes(8 * count))
        self.ended = array("d", bytes(8 * count))
        self.last_token = array("d", bytes(8 * count))
        self.gaps = array("d")
        self.window = window or (0.0, 0.0)
        self.tokens = 0  # of answers, in the window
        self.prompt_tokens = 0  # computed, in the window
        self.n_ended = 0  # requests, in the window
        self.n_over = 0  # requests, ever
        self.busy = 0.0
        self.steps = 0
        self.all_steps = 0
        self.rows = 0
        self.running = 0
        self.preempted = 0
        self.cached = 0
        self.prompted = 0
        self.looks = 0
        self.blocked: dict[str, int] = {}
        self.parts: dict[str, float] = {}
        self.seconds_of_prompts = 0.0
        self.seconds_of_answers = 0.0
        self._first = first
        self._last_over = count - first
        self._timed = window is not None
        self._inside = False

    def step(
        self,
        replica: Replica,
        spans: list[SpanRecord],
        seconds: float,
        tokens: Mapping[int, tuple[int, ...]],
    ) -> None:
        """A step ends that took `seconds`."""
        self.all_steps += 1
        if not self._inside:
            return
        self.steps += 1
        self.busy += seconds
        self.running += len(spans)
        rows = given = 0
        for span in spans:
            rows += span[2]
            given += span[2] if span[2] == span[3] else 0
        self.rows += rows
        self.prompt_tokens += rows - given
        self.preempted += len(replica.scheduler.changes.preempted)

    def at(self, now: float) -> None:
        """It is `now`."""
        if self._timed:
            began, ends = self.window
            self._inside = began <= now <= ends
            return
        inside = self._first <= self.n_over < self._last_over
        if inside is not self._inside:
            self._inside = inside
            self.window = (now, now) if inside else (self.window[0], now)

    def look(
        self, times: StepTime, spans: list[SpanRecord], scheduler: Scheduler, limits: Limits
    ) -> None:
        """At one step in some: what its time goes to, and why the first that waits does."""
        if not self._inside:
            return
        self.looks += 1
        for name, seconds in times.parts(spans).items():
            self.parts[name] = self.parts.get(name, 0.0) + seconds
        prompts = [span for span in spans if span[2] != span[3]]
        if not prompts:
            self.seconds_of_answers += times.seconds(spans)
        else:
            self._split(times, spans, prompts)
        if scheduler.n_waiting:
            why = _why(scheduler, limits, sum(span[2] for span in spans))
            self.blocked[why] = self.blocked.get(why, 0) + 1

    def _split(self, times: StepTime, spans: list[SpanRecord], prompts: list[SpanRecord]) -> None:
        """Between prompts and answers as what each would take without the other."""
        whole, alone = times.seconds(spans), times.seconds(prompts)
        rest = [span for span in spans if span[2] == span[3]]
        others = times.seconds(rest) if rest else 0.0
        self.seconds_of_prompts += whole * alone / (alone + others)
        self.seconds_of_answers += whole * others / (alone + others)

    def answered(self, tokens: Mapping[int, tuple[int, ...]], now: float) -> None:
        """Each of these requests has so many tokens more."""
        first, last_token, gaps = self._first, self.last_token, self.gaps
        first_token = self.first_token
        for id, given in tokens.items():
            n = len(given)
            if self._inside:
                self.tokens += n
            before = last_token[id]
            last_token[id] = now
            if not before:
                first_token[id] = now
                n -= 1
            elif id >= first:
                gaps.append(now - before)
                n -= 1
            else:
                continue
            if n and id >= first:  # the others of a draft come with the first
                gaps.extend([0.0] * n)

    def over(self, sequence: Sequence, now: float) -> None:
        """A request is at its end."""
        self.ended[sequence.id] = now
        self.n_over += 1
        if self._inside:
            self.n_ended += 1
            self.cached += sequence.cached_tokens
            self.prompted += sequence.n_prompt


def _why(scheduler: Scheduler, limits: Limits, rows: int) -> str:
    if scheduler.n_running >= limits.max_num_seqs:
        return PLACES
    return TOKENS if rows >= limits.max_num_batched_tokens else PAGES
