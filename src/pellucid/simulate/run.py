"""One run: requests arrive, replicas step, in the order of time.

Events are arrivals and ends of steps. What arrives during a step waits in its replica's inbox for
the next plan, as in the engine.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pellucid.core.errors import BadInput
from pellucid.costs import pages_for
from pellucid.scheduling import Limits, Sequence
from pellucid.simulate.replica import Replica
from pellucid.simulate.routing import Router
from pellucid.simulate.setup import Setup
from pellucid.simulate.tally import Tally
from pellucid.simulate.traffic import MOST_REQUESTS, Job, Traffic

WARM_UP: Final = 0.2  # of the requests, before what is looked at
_TELL_EACH: Final = 50  # requests
_OWN: Final = 1 << 40  # tokens above are of one request alone


@dataclass(frozen=True)
class Run:
    """A run that is over: its requests, as they were cut to the context, and what was seen.
    `clipped`: how many were cut. Requests from `first` on are looked at."""

    jobs: list[Job]
    tally: Tally
    first: int
    clipped: int
    ended: float

    @property
    def seconds(self) -> float:
        """Of the time that is looked at."""
        began, ends = self.tally.window
        return ends - began


def run(
    setup: Setup,
    traffic: Traffic,
    count: int,
    seed: int = 0,
    *,
    warm_up: float = WARM_UP,
    users: int | None = None,
    told: Callable[[int], None] | None = None,
) -> Run:
    """`count` requests of `traffic`, to the end of the last. Looked at are those after the first
    `warm_up` of them. With `users`, so many ask at first, and whoever has an answer asks the next;
    the traffic says then what they ask and not when. `told` is called now and then with how many
    requests more have ended. Raises `BadInput` for what is out of range."""
    if not 2 <= count <= MOST_REQUESTS:
        raise BadInput(f"{count} requests: there must be from 2 to {MOST_REQUESTS}")
    if users is not None and not 1 <= users <= count:
        raise BadInput(f"{users} users and {count} requests: there must be from 1 to {count} users")
    asked = traffic.jobs(count, seed)
    jobs = [_clipped(job, setup.limits) for job in asked]
    clipped = sum(a != b for a, b in zip(asked, jobs, strict=True))
    setup = replace(setup, limits=_enough(setup, jobs))
    first = int(count * warm_up)
    window = (jobs[first].at, jobs[-1].at) if users is None else None
    events = _Events(setup, jobs, Tally(count, first, window), seed, users, told)
    ended = events.run()
    return Run(events.jobs, events.tally, first, clipped, ended)


def _clipped(job: Job, limits: Limits) -> Job:
    """What of a request the context and the pages hold; real ones would be refused."""
    most = min(limits.max_model_len, limits.n_pages * limits.page_size)
    output = min(job.output, most - 1)
    prompt = min(job.prompt, most - output)
    return job._replace(prompt=prompt, output=output, shared=min(job.shared, prompt))


def _enough(setup: Setup, jobs: list[Job]) -> Limits:
    """The limits with no more pages than the run can come to touch, and no cache of prefixes that
    none shares: hundreds of replicas fit into memory, and nothing that happens is another."""
    limits = setup.limits
    each = [pages_for(job.prompt + job.output, limits.page_size) + 1 for job in jobs]
    touched = limits.max_num_seqs * max(each)
    shared = any(job.shared for job in jobs)
    if limits.prefix_caching and not shared and touched <= limits.n_pages:
        # Nobody ever asks for what was computed: no two begin alike, and none is preempted.
        limits = replace(limits, prefix_caching=False)
    if limits.prefix_caching and shared:
        # Whatever was ever computed may be asked for again. No replica has so many times its part.
        touched += sum(each) if setup.replicas <= 4 else 4 * sum(each) // setup.replicas
    return replace(limits, n_pages=min(limits.n_pages, touched))


class _Events:
    """What happens, in the order of time."""

    def __init__(
        self,
        setup: Setup,
        jobs: list[Job],
        tally: Tally,
        seed: int,
        users: int | None,
        told: Callable[[int], None] | None,
    ) -> None:
        self.jobs = jobs
        self._told = told
        self._n_told = 0
        self.tally = tally
        self._path, self._page_size = setup.path, setup.limits.page_size
        self._replicas = [Replica(setup, i, seed, tally) for i in range(setup.replicas)]
        self._router = Router(setup.routing, setup.slack)
        self._coming: list[tuple[float, int]] = []
        self._next = len(jobs) if users is None else 0  # of those that users ask, the next
        if users is None:
            for i in range(len(jobs)):
                self._come(i, jobs[i].at)
        for _ in range(users or 0):
            self._ask(0.0)

    def run(self) -> float:
        """To the end of the last request; returns when that is."""
        steps: list[tuple[float, int, int]] = []
        order = itertools.count()
        coming, replicas, now = self._coming, self._replicas, 0.0
        while coming or steps:
            if steps and (not coming or steps[0][0] <= coming[0][0]):
                now, _, number = heapq.heappop(steps)
                self.tally.at(now)
                for _ in range(replicas[number].end(now)):
                    self._ask(now + self._path.after)
                if self.tally.n_over - self._n_told >= _TELL_EACH:
                    self._tell()
            else:
                now, i = heapq.heappop(coming)
                self.tally.at(now)
                number = self._arrive(i)
            replica = replicas[number]
            if not replica.busy:
                end = replica.begin(now)
                if end is not None:
                    heapq.heappush(steps, (end, next(order), number))
        self._tell()
        return now

    def _tell(self) -> None:
        if self._told is not None:
            self._told(self.tally.n_over - self._n_told)
        self._n_told = self.tally.n_over

    def _ask(self, now: float) -> None:
        """A user asks what is next, if anything is."""
        if self._next < len(self.jobs):
            self.jobs[self._next] = self.jobs[self._next]._replace(at=now)
            self._come(self._next, now)
            self._next += 1

    def _come(self, i: int, at: float) -> None:
        # Longer prompts take longer to become tokens, so arrivals at the engines may change places.
        path = self._path
        delay = path.before + path.before_each * self.jobs[i].prompt
        heapq.heappush(self._coming, (at + delay, i))

    def _arrive(self, i: int) -> int:
        """At a replica, whose number is returned."""
        job = self.jobs[i]
        # Nobody looks at what the tokens are but the prefix cache: the common ones, then its own.
        common = list(range(job.text << 24, (job.text << 24) + job.shared))
        sequence = Sequence(i, common + [_OWN + i] * (job.prompt - job.shared), job.output)
        most = job.shared - job.shared % self._page_size
        number = self._router.choose(self._replicas, sequence, most=most)
        self._replicas[number].add(sequence)
        return number
