"""Sweeps and what is read from them: processes change nothing, goals are met by the fewest
replicas, and the hour's price is divided without a rest."""

from __future__ import annotations

import os
import signal
import statistics
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

import pytest

from pellucid.core.errors import BadInput, PellucidError
from pellucid.scheduling import Sequence
from pellucid.simulate.answers import (
    FLEET,
    Question,
    check_goals,
    replicas_needed,
    token_cost,
)
from pellucid.simulate.enough import Search, is_enough, is_stable
from pellucid.simulate.goals import Goal
from pellucid.simulate.routing import Router
from pellucid.simulate.setup import Setup
from pellucid.simulate.summary import Band, Delays, Point, Summary, quantile
from pellucid.simulate.sweep import Case, Sweep
from pellucid.simulate.workers import Worker, Workers
from tests.python.simulate.steps import Constant, limits, made

SETUP = Setup(limits(), Constant(0.01))
MOST = 8 / 0.01 / 10  # requests a second of answers of 10 tokens


def question(*goals: Goal, requests: int = 100, seeds: int = 2, **setup: object) -> Question:
    given = Setup(limits(), Constant(0.01), **setup)  # type: ignore[arg-type]
    return Question(given, made(1.0), requests, tuple(range(seeds)), goals)


def test_processes_change_nothing() -> None:
    told: list[tuple[int, int]] = []
    cases = [Case(SETUP, made(rate), 250, (0, 1)) for rate in (20.0, 60.0, 100.0)]
    with Sweep(1) as one, Sweep(2, lambda done, of: told.append((done, of))) as two:
        assert [p.runs for p in two.points(cases * 4)] == [p.runs for p in one.points(cases * 4)]
    assert told[-1] == (24 * 250, 24 * 250)  # requests
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_a_run_refuses_is_raised_here() -> None:
    workers = Workers(2)
    try:
        with pytest.raises(BadInput, match="requests"):
            workers.map(_refuse, [(1,), (2,), (3,)])
        assert workers.map(abs, [(-1,), (2,)]) == [1, 2]
    finally:
        workers.close()


def _refuse(number: int) -> None:
    raise BadInput(f"no requests: {number}")


def test_a_process_that_is_killed_is_an_error_and_no_hang() -> None:
    worker = Worker()
    assert worker.call(abs, -3) == 3
    with pytest.raises(PellucidError, match="has ended"):
        worker.call(os.kill, worker.call(os.getpid), signal.SIGKILL)
    worker.close()


def test_a_band_is_students() -> None:
    values = [1.0, 2.0, 4.0, 5.0]
    band = Band.of(values)
    half = 3.182 * statistics.stdev(values) / 2
    assert (band.mean, band.low, band.high) == pytest.approx((3, max(0, 3 - half), 3 + half))
    assert Band.of([2.0]) == Band(2.0, 2.0, 2.0)


def test_quantiles_are_those_of_the_library() -> None:
    values = sorted(((i * 7919) % 101) / 3 for i in range(101))
    found = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (50, 90, 95, 99):
        assert quantile(values, percent / 100) == pytest.approx(found[percent - 1])
    assert Delays.of([]).p95 is None


def test_the_fewest_replicas_that_keep_up_are_found() -> None:
    asked = question()
    with Sweep(1) as sweep:
        needed = replicas_needed(sweep, asked, 4.2 * MOST, MOST)
    assert needed.replicas in (5, 6)
    assert is_stable(needed.point)
    enough = {n: is_enough(point, asked.goals) for n, point in needed.tried.items()}
    assert min(n for n, good in enough.items() if good) == needed.replicas


def test_a_goal_needs_more_than_keeping_up() -> None:
    goal = Goal("ttft", "p95", 0.025)
    with Sweep(1) as sweep:
        plain = replicas_needed(sweep, question(), 3 * MOST, MOST)
        strict = replicas_needed(sweep, question(goal), 3 * MOST, MOST)
    assert strict.replicas >= plain.replicas
    assert goal.met(strict.point)


def test_hundreds_of_replicas() -> None:
    asked = Question(SETUP, made(1.0, 20, 10, burstiness=0.5), 40, (0,))
    with Sweep(1) as sweep:
        few, many = sweep.points([asked.case(100 * MOST, n) for n in (80, 130)])
    assert is_stable(many)
    assert not is_stable(few)


def test_hundreds_that_a_goal_needs_are_enough_and_one_less_is_not() -> None:
    goal = Goal("ttft", "p95", 0.025)
    asked = Question(SETUP, made(1.0, 20, 10), 40, (0,), (goal,))
    rate = 80 * MOST
    with Sweep(1) as sweep:
        needed = replicas_needed(sweep, asked, rate, MOST)
        assert needed.replicas > 2 * FLEET
        fewer, enough = sweep.points([asked.case(rate, needed.replicas + k) for k in (-1, 0)])
        sample = sweep.points([asked.sample(rate, needed.replicas)])[0]
    assert is_enough(enough, asked.goals)
    assert not is_enough(fewer, asked.goals)
    assert enough == needed.point
    # A sample says of rates what the whole does.
    served = [point.mean(lambda run: run.served) for point in (sample, enough)]
    assert served[0] == pytest.approx(served[1], rel=0.1)


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_is_told_in_the_midst_of_a_run(processes: int) -> None:
    told: list[int] = []
    case = Case(SETUP, made(60.0), 5000, (0, 1))
    with Sweep(processes, lambda done, of: told.append(done)) as sweep:
        sweep.points([case])
    assert told[-1] == 2 * 5000
    assert max(b - a for a, b in pairwise(told)) <= 100


def test_what_hundreds_cost_is_a_few_whole_fleets() -> None:
    """In simulated requests: however many replicas are needed, whole ones are run near the answer
    alone."""
    goal = Goal("ttft", "p95", 0.025)
    for many in (200,):
        told: list[tuple[int, int]] = []
        asked = Question(SETUP, made(1.0, 20, 10), 40, (0, 1, 2), (goal,))
        with Sweep(1, lambda done, of: told.append((done, of))) as sweep:  # noqa: B023
            needed = replicas_needed(sweep, asked, many * MOST, MOST)
        whole = asked.case(many * MOST, needed.replicas)
        assert told[-1][0] == told[-1][1] <= 10 * whole.requests * len(whole.seeds)
        assert len(needed.tried) <= 6


@pytest.mark.parametrize("start", [1, 3, 7, 8, 9, 12, 40])
@pytest.mark.parametrize("fewest", [3, 8, 9, 30])
def test_a_search_finds_the_fewest_wherever_it_begins(start: int, fewest: int) -> None:
    search = Search(Counting(fewest), (), 1.0, lambda n: n)  # type: ignore[arg-type, return-value]
    assert search.near(max(start, 3), 3) == fewest
    assert search.upwards(3) == fewest
    assert fewest in search.tried
    assert fewest == 3 or fewest - 1 in search.tried


class Counting:
    """A sweep in which so many replicas keep up, and fewer do not."""

    def __init__(self, fewest: int) -> None:
        self._fewest = fewest

    def points(self, counts: list[int]) -> list[Point]:
        runs = [replace(EMPTY, rate=1.0, served=float(n >= self._fewest)) for n in counts]
        return [Point((run,)) for run in runs]


NO_DELAYS = Delays(None, None, None, None, None)
EMPTY = Summary(
    **{
        field.name: {"Delays": NO_DELAYS, "dict[str, float]": {}}.get(str(field.type), 0)  # type: ignore[arg-type]
        for field in fields(Summary)
    }
)


def test_what_none_of_them_can_do_is_said() -> None:
    with Sweep(1) as sweep:
        alone = sweep.points([question().alone])[0]
        with pytest.raises(BadInput, match=r"--itl-p50 0\.001 cannot be met .* 0\.01 s"):
            check_goals([Goal("itl", "p50", 0.001)], alone)
        check_goals([Goal("itl", "p50", 0.011)], alone)
        with pytest.raises(BadInput, match="are the most that are simulated"):
            replicas_needed(sweep, question(), 1e5, MOST)


def test_the_price_is_divided_without_a_rest() -> None:
    with Sweep(1) as sweep:
        point = sweep.points([question().case(0.5 * MOST)])[0]
    cost = token_cost(point, 3.6, 2)
    assert cost is not None and cost.prompt is not None and cost.answer is not None
    prompts = point.mean(lambda run: run.served) * 20
    answers = point.mean(lambda run: run.output_tokens)
    spent = (cost.prompt * prompts + cost.answer * answers) / 1e6
    assert spent == pytest.approx(2 * 3.6 / 3600)
    assert cost.together * (prompts + answers) / 1e6 == pytest.approx(spent)


@dataclass
class Replica:
    load: int
    holds: int = 0
    asked: list[Sequence] = field(default_factory=list)

    def cached(self, asked: Sequence) -> int:
        return self.holds


ASKED = Sequence(0, [1, 2, 3], 1)


def test_routers_do_as_they_are_called() -> None:
    replicas = [Replica(3), Replica(1, 16), Replica(1), Replica(9, 32)]
    in_turn = Router("round-robin", 2)
    assert [in_turn.choose(replicas, ASKED) for _ in range(6)] == [0, 1, 2, 3, 0, 1]
    least = Router("least-loaded", 2)
    assert [least.choose(replicas, ASKED) for _ in range(4)] == [1, 2, 1, 2]
    # The longest prefix lies where 8 more are under way: too many, unless that much is allowed.
    assert Router("prefix", 2).choose(replicas, ASKED) == 1
    assert Router("prefix", 8).choose(replicas, ASKED) == 3
    nobody = [Replica(2), Replica(1), Replica(1)]
    assert Router("prefix", 2).choose(nobody, ASKED) == 1
