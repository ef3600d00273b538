"""What a run, or several of other seeds, say: rates, quantiles, and how sure they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from pellucid.simulate.run import Run
from pellucid.simulate.setup import Setup

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)

# Student's t, two-sided 95 %, by degrees of freedom; beyond, the normal distribution's.
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NORMAL: Final = 1.96


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds: the mean, and quantiles. None: there was nothing to measure."""

    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None

    @staticmethod
    def of(values: Iterable[float]) -> Delays:
        ordered = sorted(values)
        if not ordered:
            return Delays(None, None, None, None, None)
        found = [quantile(ordered, share) for share in QUANTILES]
        return Delays(math.fsum(ordered) / len(ordered), *found)

    def shifted(self, seconds: float) -> Delays:
        """All of them so much later."""
        return Delays(*(None if x is None else x + seconds for x in _values(self)))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values, the lower neighbour and the upper one weighed by their nearness."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one run. Rates are a second, of the time that is looked at; ttft: from a request's
    arrival to its first token at the client; itl: between two tokens; e2e: to the last token;
    per_token: of each request, the mean time between its tokens.

    utilization: share of the time that a replica steps; steps_per_second: of one.
    batch, rows: sequences and positions of a step. waiting: share of looked-at steps after which
    somebody waited, by what for. parts: share of the steps' time by what it went to. prompt_share:
    of the steps' time, what prompts took. hit_rate: share of prompt tokens that the prefix cache
    had. mean_prompt: tokens of a prompt.
    """

    rate: float
    offered_tokens: float
    served: float
    output_tokens: float
    prompt_tokens: float
    ttft: Delays
    itl: Delays
    per_token: Delays
    e2e: Delays
    utilization: float
    steps_per_second: float
    batch: float
    rows: float
    waiting: dict[str, float]
    parts: dict[str, float]
    prompt_share: float
    hit_rate: float
    mean_prompt: float
    preempted: int
    clipped: int
    requests: int
    steps: int
    seconds: float

    def of_so_many(self, times: float) -> Summary:
        """Of `times` as many replicas that do the same."""
        if times == 1:
            return self
        return replace(
            self,
            rate=times * self.rate,
            offered_tokens=times * self.offered_tokens,
            served=times * self.served,
            output_tokens=times * self.output_tokens,
            prompt_tokens=times * self.prompt_tokens,
        )


def summarize(setup: Setup, found: Run) -> Summary:
    """The run in numbers."""
    tally, jobs, first = found.tally, found.jobs, found.first
    seconds = max(found.seconds, 1e-9)
    after = setup.path.after
    looked = range(first, len(jobs))
    ttft = Delays.of(tally.first_token[i] - jobs[i].at + after for i in looked)
    e2e = Delays.of(tally.ended[i] - jobs[i].at + after for i in looked)
    each = Delays.of(
        (tally.ended[i] - tally.first_token[i]) / (jobs[i].output - 1)
        for i in looked
        if jobs[i].output > 1
    )
    looks, steps = max(tally.looks, 1), max(tally.steps, 1)
    parts = math.fsum(tally.parts.values()) or 1.0
    split = tally.seconds_of_prompts + tally.seconds_of_answers
    n_looked = len(jobs) - first
    return Summary(
        rate=max(n_looked - 1, 1) / seconds,
        offered_tokens=sum(jobs[i].output for i in looked) / seconds,
        served=tally.n_ended / seconds,
        output_tokens=tally.tokens / seconds,
        prompt_tokens=tally.prompt_tokens / seconds,
        ttft=ttft,
        itl=Delays.of(tally.gaps),
        per_token=each,
        e2e=e2e,
        utilization=min(tally.busy / seconds / setup.replicas, 1.0),
        steps_per_second=tally.steps / seconds / setup.replicas,
        batch=tally.running / steps,
        rows=tally.rows / steps,
        waiting={why: n / looks for why, n in sorted(tally.blocked.items())},
        parts={name: s / parts for name, s in tally.parts.items()},
        prompt_share=tally.seconds_of_prompts / split if split else 0.0,
        hit_rate=tally.cached / tally.prompted if tally.prompted else 0.0,
        mean_prompt=sum(jobs[i].prompt for i in looked) / n_looked,
        preempted=tally.preempted,
        clipped=found.clipped,
        requests=len(jobs),
        steps=tally.all_steps,
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class Band:
    """A mean over seeds, and where the true mean lies with 95 % confidence (Student's t). One seed
    says nothing of that: low and high are the mean."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Band:
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            return Band(mean, mean, mean)
        degrees = len(values) - 1
        t = _T[degrees - 1] if degrees <= len(_T) else _NORMAL
        half = t * statistics.stdev(values) / math.sqrt(len(values))
        return Band(mean, max(0.0, mean - half), mean + half)


@dataclass(frozen=True)
class Point:
    """The same setup and load with several seeds."""

    runs: tuple[Summary, ...]

    def band(self, value: Callable[[Summary], float | None]) -> Band | None:
        """Of a number that each run has; None where one has none."""
        values = [value(one) for one in self.runs]
        known = [x for x in values if x is not None]
        return Band.of(known) if len(known) == len(values) else None

    def mean(self, value: Callable[[Summary], float]) -> float:
        return math.fsum(map(value, self.runs)) / len(self.runs)

    def shares(self, value: Callable[[Summary], dict[str, float]]) -> dict[str, float]:
        """Of shares by name, the means."""
        found: dict[str, float] = {}
        for one in self.runs:
            for name, share in value(one).items():
                found[name] = found.get(name, 0.0) + share / len(self.runs)
        return found


def _values(delays: Delays) -> list[Any]:
    return [getattr(delays, each.name) for each in fields(delays)]
