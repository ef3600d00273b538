"""Sweeps: many runs, in as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pellucid.simulate.run import run
from pellucid.simulate.setup import Setup
from pellucid.simulate.summary import Point, Summary, summarize
from pellucid.simulate.traffic import Traffic
from pellucid.simulate.workers import Workers

# Work (see `Case.work`) of which a run takes less than another process takes to start.
_SMALL: Final = 100_000


@dataclass(frozen=True)
class Case:
    """A load on a setup, to be run with each of `seeds`; with `users`, as many as ask at once. It
    stands for `times` as many replicas with `times` the load."""

    setup: Setup
    traffic: Traffic
    requests: int
    seeds: tuple[int, ...] = (0,)
    users: int | None = None
    times: float = 1.0

    @property
    def work(self) -> float:
        """About how much a run is: tokens of answers, and some for each prompt."""
        return self.requests * (self.traffic.mean_output + 16)


Told = Callable[[int, int], None]


class Sweep:
    """Runs cases; processes start when they are needed, and are kept until `close`. `told` is
    called, as runs go on, with the requests that are simulated and those that are to be."""

    def __init__(
        self, processes: int | None = None, told: Told | None = None, *, nice: int = 0
    ) -> None:
        self._processes = processes or len(os.sched_getaffinity(0))
        self._told = told
        self._workers = Workers(self._processes, nice)
        self._done = self._asked = 0

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes, whatever they do."""
        self._workers.close()

    def points(self, cases: Sequence[Case]) -> list[Point]:
        """One for each case. Raises what a run raises."""
        runs = [(case, seed) for case in cases for seed in case.seeds]
        self._asked += sum(case.requests for case, _ in runs)
        self._tell(0)
        work = sum(case.work for case, _ in runs)
        if self._processes == 1 or len(runs) == 1 or work < _SMALL:
            found = [one(case, seed, self._tell) for case, seed in runs]
        else:
            found = self._apart(runs)
        left = iter(found)
        return [Point(tuple(next(left) for _ in case.seeds)) for case in cases]

    def _apart(self, runs: Sequence[tuple[Case, int]]) -> list[Summary]:
        # The largest first, so that none is left for the end.
        order = sorted(range(len(runs)), key=lambda i: -runs[i][0].work)
        done = self._workers.map(one, [runs[i] for i in order], self._tell)
        found = dict(zip(order, done, strict=True))
        return [found[i] for i in range(len(runs))]

    def _tell(self, more: int) -> None:
        self._done += more
        if self._told is not None:
            self._told(self._done, self._asked)


def one(case: Case, seed: int, told: Callable[[int], None] | None = None) -> Summary:
    """One run of a case; `told` is as in `run`."""
    found = run(case.setup, case.traffic, case.requests, seed, users=case.users, told=told)
    return summarize(case.setup, found).of_so_many(case.times)
