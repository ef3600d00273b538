"""The answers to a plan: where it saturates, latency against load, how many replicas, what a token
costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pellucid.core.errors import BadInput
from pellucid.simulate.enough import Search
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
_LARGER, _PART = 4, 3  # samples grow by this, while so many make up the whole
MOST_PLACES: Final = 4096  # beyond, the crowd's requests alone would take minutes
_ALIKE: Final = 8  # replicas that tell together what as many seeds would
_MANY: Final = 64  # replicas beyond which one seed is run: each has its own luck
FLEET: Final = 16
"""Replicas beyond which a load on each is much as on so many: the more there are the less one of
them has to wait while another is idle, and that is little by then."""


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
        return self._case(rate, replicas, replicas)

    def sample(self, rate: float, replicas: int, size: int = FLEET) -> Case:
        """As `case`, of `size` replicas with their share of the load where there are more than
        `FLEET`: a small part of the work."""
        if replicas <= FLEET:
            return self.case(rate, replicas)
        times = replicas / size
        return replace(self._case(rate / times, size, replicas), times=times)

    def _case(self, rate: float, replicas: int, of: int) -> Case:
        """`replicas` that are all there are, or stand for `of`."""
        setup = replace(self.setup, replicas=replicas)
        each = max(_PER_REPLICA, _PER_PLACE * setup.limits.max_num_seqs)
        if of > FLEET:  # where one has seen little, others have seen the rest
            each = max(_PER_REPLICA, 2 * setup.limits.max_num_seqs)
        requests = max(self.requests, each * replicas)
        # Many replicas scatter less by themselves: two seeds will do for a band, and one beyond.
        few = max(2, len(self.seeds) * _ALIKE // max(replicas, _ALIKE))
        if replicas > _MANY:
            few = 1
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
    return [question.sample(load * saturation * replicas, replicas) for load in LOADS]


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

    Beyond `FLEET` they are looked for by samples first, and by whole fleets from there on: the
    number that is found was enough as a whole, and one less was not, or is below what keeps up.
    """
    low = max(1, math.ceil(rate / saturation * 0.98))
    if low > FLEET:  # so many even out: a run may be over before it shows that they fall behind
        low = math.ceil(rate / saturation)
    if low > MOST_REPLICAS:
        raise BadInput(
            f"{rate:g} requests a second need about {low} replicas, and {MOST_REPLICAS} are the "
            "most that are simulated: ask for a smaller rate"
        )
    whole = Search(sweep, question.goals, rate, lambda n: question.case(rate, n))
    about, tried = _about(sweep, question, rate, low)
    if low <= FLEET:  # whole ones, with all seeds
        whole.tried.update((n, point) for n, point in tried.items() if n <= FLEET)
    found = whole.near(about, low)
    return Needed(found, whole.tried[found], whole.tried)


def _about(sweep: Sweep, question: Question, rate: float, low: int) -> tuple[int, dict[int, Point]]:
    """How many are needed, and what was tried of `FLEET` at the most: by samples, small ones first,
    then such as come nearer to the whole, as long as they are a small part of it."""
    if low > FLEET:
        question = replace(question, seeds=question.seeds[:1])
    search = _sampled(sweep, question, rate, FLEET)
    found, size = search.upwards(low), FLEET
    tried = search.tried
    while found >= _PART * _LARGER * size:
        size *= _LARGER
        found = _sampled(sweep, question, rate, size).near(found, low)
    return found, tried


def _sampled(sweep: Sweep, question: Question, rate: float, size: int) -> Search:
    return Search(sweep, question.goals, rate, lambda n: question.sample(rate, n, size))


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
