"""Placement: which replica is to answer a request.

The one that holds the longest cached prefix of its prompt, among those that do not have `slack`
answers more to do than the least loaded; of equals the least loaded; of those each in turn.

What a replica holds is known by what was sent there: pages are told by the digests that the prefix
cache uses, which begin at the tenant's salt, and of each replica as many are remembered as it has
pages, least recently used first to go, ends of chains before their beginnings. That view may be
wrong in both directions; a wrong guess costs computing a prefix again, and never an answer.

No clock, no I/O. For any thread: Ray routes in one of its own.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Literal

from pellucid.cache.prefix import PrefixCache

Why = Literal["prefix", "least loaded", "balance", "in turn"]
Policy = Literal["prefix", "least-loaded", "round-robin"]
POLICIES: Final[tuple[Policy, ...]] = ("prefix", "least-loaded", "round-robin")
WHYS: Final[tuple[Why, ...]] = ("prefix", "least loaded", "balance", "in turn")


class Held:
    """The digests of pages that one replica holds, as far as is known; at most `capacity`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._pages: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def match(self, digests: Sequence[bytes]) -> int:
        """How many pages of that chain are held, from its beginning."""
        return sum(1 for _ in itertools.takewhile(self._pages.__contains__, digests))

    def add(self, digests: Sequence[bytes]) -> None:
        """The pages of a chain were used: its beginning counts as used last."""
        for digest in reversed(digests):
            self._pages[digest] = None
            self._pages.move_to_end(digest)
        while len(self._pages) > self._capacity:
            self._pages.popitem(last=False)


class Placement:
    """The view of one client. `page_size` and `capacity` (pages) are the replicas' own."""

    def __init__(
        self, page_size: int, capacity: int, slack: int, policy: Policy = "prefix"
    ) -> None:
        self.chosen: Counter[Why] = Counter()
        self._cache = PrefixCache(page_size)  # for its digests alone
        self._page_size = page_size
        self._capacity = capacity
        self._slack = slack
        self._policy = policy
        self._held: dict[str, Held] = {}
        self._loads: Counter[str] = Counter()
        self._turns: dict[str, int] = {}  # when a replica was last chosen
        self._known: tuple[str, ...] = ()
        self._shunned: frozenset[str] = frozenset()
        self._count = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def known(self) -> tuple[str, ...]:
        """The replicas there were when something was placed last."""
        return self._known

    def load(self, replica: str) -> int:
        """Answers under way there, of this client."""
        return self._loads[replica]

    def pages_of(self, salt: bytes, tokens: Sequence[int]) -> list[bytes]:
        """The digests of the full pages of a prompt."""
        digests: list[bytes] = []
        self._cache.extend_digests(digests, salt, tokens, len(tokens) // self._page_size)
        return digests

    def rank(self, route: Route, replicas: Sequence[str]) -> list[str]:
        """`replicas` in the order in which they are to be asked, and `route` placed at the first;
        none if none of them may be."""
        with self._lock:
            self._notice(replicas)
            if route.to is not None:
                if route.to in replicas:
                    return [route.to]
                route.missing()
                return []
            open_to = [name for name in replicas if name not in route.avoid]
            open_to = [name for name in open_to if name not in self._shunned] or open_to
            if not open_to:
                return []
            first, why = self._choose(route, open_to)
            others = [name for name in self._by_load(open_to) if name != first]
            self._place(route, first, why)
            return [first, *others]

    def routed(self, route: Route, replica: str) -> None:
        """It went there, wherever it was placed."""
        with self._lock:
            if route.to is None and route.replica != replica and not route.ended:
                self._place(route, replica, "least loaded")

    def leave(self, route: Route, tokens: Sequence[int] = ()) -> None:
        """The request has ended; `tokens` are what its replica has computed, prompt and answer."""
        with self._lock:
            route.ended = True
            if route.replica is None:
                return
            self._loads[route.replica] -= route.answers
            held = self._held.get(route.replica)
            if held is not None and len(tokens) >= self._page_size:
                held.add(self.pages_of(route.salt, tokens))

    def shun(self, replicas: Collection[str]) -> None:
        """Nothing goes to these as long as there are others."""
        with self._lock:
            self._shunned = frozenset(replicas)

    def forget(self, replica: str) -> None:
        """It has ended, and what it held is gone."""
        with self._lock:
            self._drop(replica)

    def _notice(self, replicas: Sequence[str]) -> None:
        self._known = tuple(replicas)
        for name in [name for name in self._held if name not in replicas]:
            self._drop(name)

    def _drop(self, replica: str) -> None:
        self._held.pop(replica, None)
        self._turns.pop(replica, None)

    def _choose(self, route: Route, replicas: Sequence[str]) -> tuple[str, Why]:
        if self._policy == "round-robin":
            return min(replicas, key=lambda name: self._turns.get(name, 0)), "in turn"
        least = self._by_load(replicas)[0]
        if self._policy == "least-loaded":
            return least, "least loaded"
        matches = {name: self._match(name, route.pages) for name in replicas}
        most = self._loads[least] + self._slack
        near = [name for name in self._by_load(replicas) if self._loads[name] <= most]
        best = max(near, key=lambda name: matches[name])  # the first of equals
        if matches[best] < max(matches.values()):
            return best, "balance"
        return best, "prefix" if matches[best] else "least loaded"

    def _match(self, replica: str, pages: Sequence[bytes]) -> int:
        held = self._held.get(replica)
        return 0 if held is None else held.match(pages)

    def _by_load(self, replicas: Iterable[str]) -> list[str]:
        return sorted(replicas, key=lambda name: (self._loads[name], self._turns.get(name, 0)))

    def _place(self, route: Route, replica: str, why: Why) -> None:
        if route.replica is not None:  # it was placed elsewhere, and not taken there
            self._loads[route.replica] -= route.answers
            self.chosen[route.why] -= 1
        route.replica, route.why = replica, why
        self.chosen[why] += 1
        self._loads[replica] += route.answers
        self._turns[replica] = next(self._count)
        self._held.setdefault(replica, Held(self._capacity)).add(route.pages)


class Route:
    """One request on its way. Routing happens in this process, which is where the route is filled
    in; to a replica it goes as None.

    `to`: the replica that is meant, and no other; `missing` is called, in the router's thread, if
    there is none of that name. `avoid`: those it shall not go to. `answers`: how many it asks for.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        tokens: Sequence[int] = (),
        salt: bytes = b"",
        answers: int = 0,
        avoid: Collection[str] = (),
        to: str | None = None,
        missing: Callable[[], object] = lambda: None,
    ) -> None:
        self.salt = salt
        self.answers = answers
        self.avoid = frozenset(avoid)
        self.to = to
        self.missing = missing
        self.pages = placement.pages_of(salt, tokens)
        self.replica: str | None = None
        self.why: Why = "least loaded"
        self.ended = False
        self._placement = placement

    def rank(self, replicas: Sequence[str]) -> list[str]:
        """As `Placement.rank`."""
        return self._placement.rank(self, replicas)

    def routed(self, replica: str) -> None:
        """As `Placement.routed`."""
        self._placement.routed(self, replica)

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return _nothing, ()


def _nothing() -> None:
    """What a route is anywhere else."""
