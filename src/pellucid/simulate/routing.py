"""Which replica gets a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pellucid.scheduling import Sequence as Asked
from pellucid.simulate.setup import Routing


class Holder(Protocol):
    """What a router sees of a replica."""

    @property
    def load(self) -> int:
        """Requests that it has, waiting or running."""
        ...

    def cached(self, asked: Asked) -> int:
        """Tokens of a prompt that its prefix cache holds."""
        ...


class Router:
    """Which of the replicas is next, by the rule of real ones: each in turn; the least loaded; or
    the one that holds the longest prefix among those with at most `slack` requests more than the
    least loaded, of equals the least loaded. Of equals in all, each in turn."""

    def __init__(self, routing: Routing, slack: int) -> None:
        self._routing = routing
        self._slack = slack
        self._turns: dict[int, int] = {}
        self._n = 0

    def choose(self, replicas: Sequence[Holder], asked: Asked, *, most: int | None = None) -> int:
        """The index of a replica. `most`: so many of its tokens can be held at the most; with 0
        nobody need be asked."""
        if len(replicas) == 1:
            return 0
        chosen = self._choose(replicas, asked, most)
        self._n += 1
        self._turns[chosen] = self._n
        return chosen

    def _choose(self, replicas: Sequence[Holder], asked: Asked, most: int | None) -> int:
        turns = self._turns
        if self._routing == "round-robin":
            return min(range(len(replicas)), key=lambda i: turns.get(i, 0))
        loads = [replica.load for replica in replicas]
        least = min(loads)
        if most == 0 or self._routing == "least-loaded":
            equals = [i for i, load in enumerate(loads) if load == least]
            return min(equals, key=lambda i: turns.get(i, 0))
        near = [i for i, load in enumerate(loads) if load <= least + self._slack]
        chosen, longest = near[0], -1
        for i in sorted(near, key=lambda i: (loads[i], turns.get(i, 0))):
            held = replicas[i].cached(asked)
            if held > longest:
                chosen, longest = i, held
            if held == most:  # of hundreds the first few have it
                break
        return chosen
