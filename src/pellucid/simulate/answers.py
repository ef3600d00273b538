"""The answers to a plan: where it saturates, latency against load, how many replicas, what a token
costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pellucid.core.errors import BadInput
from pellucid.simulate.goals import Goal
from pellucid.simulate.setup import MOST_REPLICAS, Setup
from pellucid.simulate.summary import Point
from pellucid.simulate.sweep import Case, Sweep
from pellucid.simulate.traffic import Traffic

# Loads of the curve, over the rate at which it saturates.
LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1, 1.25)
# Requests that wait in the run that saturates, over those that run: enough that a place is never
# empty, few enough that none is passed over for long.
_CROWD: Final = 2
# Requests that each replica has at the least: some, and some for each place, since a run that ends
# before its places are taken has not seen its load.
_PER_REPLICA: Final = 40
_PER_PLACE: Final = 3
MOST_PLACES: Final = 4096  # beyond, the crowd's requests alone would take minutes
_ALIKE: Final = 8  # replicas that tell together what as many seeds would


@dataclass(frozen=True)
class Question:
    """A setup of one replica, its traffic, how long to look, and what is promised."""

    setup: Setup
    traffic: Traffic
    requests: int
    seeds: tuple[int, ...]
    goals: tuple[Goal, ...] = ()

    def case(self, rate: float, replicas: int = 1) -> Case:
        """A load, shared by so many replicas."""
        setup = replace(self.setup, replicas=replicas)
        each = max(_PER_REPLICA, _PER_PLACE * setup.limits.max_num_seqs)
        requests = max(self.requests, each * replicas)
        # Many replicas scatter less by themselves: two seeds will do for a band.
        few = max(2, len(self.seeds) * _ALIKE // max(replicas, _ALIKE))
        return Case(setup, self.traffic.at_rate(rate), requests, self.seeds[:few])

    @property
    def crowd(self) -> Case:
        """As much as it can do: more users than have places. Raises `BadInput` for places beyond
        what is simulated."""
        places = self.setup.limits.max_num_seqs
        if places > MOST_PLACES:
            raise BadInput(
                f"max_num_seqs {places}: {MOST_PLACES} sequences at once are the most that are "
                "simulated: lower it"
            )
        users = _CROWD * places
        # Each place is taken several times over, so that the beginning and the end count little.
        requests = max(self.requests, 8 * users)
        return Case(self.setup, self.traffic, requests, self.seeds, users=users)

    @property
    def alone(self) -> Case:
        """One user: the best that anybody can have."""
        return Case(self.setup, self.traffic, max(self.requests // 4, 50), self.seeds, users=1)


def loads_of(question: Question, saturation: float, replicas: int) -> list[Case]:
    """The curve's cases."""
    return [question.case(load * saturation * replicas, replicas) for load in LOADS]


def served(point: Point) -> float:
    """Requests a second that end."""
    return point.mean(lambda run: run.served)


def is_stable(point: Point) -> bool:
    """Whether it keeps up: in the time looked at as many end as come, nearly."""
    return served(point) >= 0.95 * point.mean(lambda run: run.rate)


def meets(point: Point, goals: Sequence[Goal]) -> bool:
    return all(goal.met(point) for goal in goals)


def check_goals(goals: Sequence[Goal], alone: Point) -> None:
    """Raises `BadInput` for one that even a single user would not have, with what is reachable."""
    for goal in goals:
        best = goal.of(alone)
        if best is not None and not goal.met(alone):
            raise BadInput(
                f"--{goal.name} {goal.seconds:g} cannot be met by any number of replicas: a user "
                f"alone on one has a {goal.words} of {best.mean:.3g} s: allow at least that, or "
                "take a faster machine, fewer bits or shorter prompts"
            )


@dataclass(frozen=True)
class Needed:
    """The fewest replicas found to meet the goals, their point, and what was tried."""

    replicas: int
    point: Point
    tried: dict[int, Point]


def replicas_needed(sweep: Sweep, question: Question, rate: float, saturation: float) -> Needed:
    """For a rate of all requests together. Raises `BadInput` where none of up to `MOST_REPLICAS`
    are enough.

    More replicas are better but for chance, so it is searched: upwards from as many as keep up with
    the rate at all, in wider and wider strides, then by halving between.
    """
    tried: dict[int, Point] = {}

    def good(counts: Sequence[int]) -> list[bool]:
        new = [n for n in counts if n not in tried]
        for n, point in zip(new, sweep.points([question.case(rate, n) for n in new]), strict=True):
            tried[n] = point
        return [is_enough(tried[n], question.goals) for n in counts]

    low = max(1, math.ceil(rate / saturation * 0.98))
    if low > MOST_REPLICAS:
        raise BadInput(
            f"{rate:g} requests a second need about {low} replicas, and {MOST_REPLICAS} are the "
            "most that are simulated: ask for a smaller rate"
        )
    stride, below, above = max(1, low // 8), low - 1, None
    while above is None:
        counts = sorted({min(below + stride * k, MOST_REPLICAS) for k in (1, 2)})
        if below == 0 and low == 1:
            counts = [1, 2]
        for n, enough in zip(counts, good(counts), strict=True):
            if enough:
                above = n
                break
            below = n
        if above is None and below >= MOST_REPLICAS:
            worst = tried[below]
            told = "; ".join(_told(goal, worst) for goal in question.goals if not goal.met(worst))
            raise BadInput(
                f"{MOST_REPLICAS} replicas do not meet the goals at {rate:g} requests a second: "
                f"{told}"
            )
        stride *= 2
    while above - below > 1:
        middle = (above + below) // 2
        if good([middle])[0]:
            above = middle
        else:
            below = middle
    return Needed(above, tried[above], tried)


def is_enough(point: Point, goals: Sequence[Goal]) -> bool:
    return is_stable(point) and meets(point, goals)


def _told(goal: Goal, point: Point) -> str:
    band = goal.of(point)
    reached = "nothing" if band is None else f"{band.mean:.3g} s"
    return f"the {goal.words} is {reached}, not {goal.seconds:g} s"


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Money for a million tokens of prompts (cached ones count) and of answers. The hour's price is
    divided between them as the steps' time is: a step with both is divided as each by itself would
    take. Idle time is divided alike."""

    prompt: float | None
    answer: float | None
    together: float


def token_cost(point: Point, per_hour: float, replicas: int) -> TokenCost | None:
    """None where nothing was served."""
    answers = point.mean(lambda run: run.output_tokens)
    if answers <= 0:
        return None
    prompts = point.mean(lambda run: run.served) * _mean_prompt(point)
    share = point.mean(lambda run: run.prompt_share)
    each_second = per_hour * replicas / 3600
    return TokenCost(
        1e6 * each_second * share / prompts if prompts > 0 else None,
        1e6 * each_second * (1 - share) / answers,
        1e6 * each_second / (answers + prompts),
    )


def _mean_prompt(point: Point) -> float:
    return point.mean(lambda run: run.mean_prompt)
