"""Followers: sequences that wait for another to compute what they have in common.

A sequence follows a leader until the leader has computed a number of positions: its sibling's
prompt, or the prefix that both prompts share. Computing the same twice would make both later.
"""

from __future__ import annotations

import heapq
from itertools import islice

from pellucid.scheduling.sequence import Sequence


class Followers:
    """Who follows whom, and which pages are on their way into the prefix cache.

    A follower that is finished is forgotten at once; what remains of it in a heap goes with the
    leader.
    """

    def __init__(self) -> None:
        self._heaps: dict[Sequence, list[tuple[int, int, Sequence]]] = {}  # by positions awaited
        self._siblings: dict[Sequence, list[Sequence]] = {}
        self._leaders: dict[Sequence, Sequence] = {}  # follower: leader
        self._coming: dict[bytes, Sequence] = {}  # digest of a page: who computes it

    def __len__(self) -> int:
        return len(self._leaders)

    def items(self) -> list[tuple[Sequence, Sequence]]:
        """(follower, leader), in order of rank."""
        return sorted(self._leaders.items(), key=lambda pair: pair[0].rank)

    def some(self, count: int) -> list[tuple[Sequence, Sequence]]:
        """`count` of them at the most, those that came first."""
        return list(islice(self._leaders.items(), count))

    def expect(self, leader: Sequence, first_page: int) -> None:
        """The leader will compute the pages of its digests from `first_page` on."""
        for digest in leader.digests[first_page:]:
            self._coming.setdefault(digest, leader)

    def arrived(self, leader: Sequence, digest: bytes) -> None:
        """The leader computed a page, or never will."""
        if self._coming.get(digest) is leader:
            del self._coming[digest]

    def coming(self, digests: list[bytes], first_page: int) -> tuple[Sequence, int] | None:
        """Who computes page `first_page` of these digests now, and up to which page it is the
        same; None if nobody does."""
        if first_page >= len(digests):
            return None
        leader = self._coming.get(digests[first_page])
        if leader is None:
            return None
        end = first_page + 1
        while end < len(digests) and self._coming.get(digests[end]) is leader:
            end += 1
        return leader, end

    def follow(self, follower: Sequence, leader: Sequence, until: int) -> None:
        """Wait until the leader has computed `until` positions of a prefix both have."""
        heap = self._heaps.setdefault(leader, [])
        heapq.heappush(heap, (until, follower.arrival, follower))
        self._leaders[follower] = leader

    def follow_sibling(self, follower: Sequence, leader: Sequence) -> None:
        """Wait until the leader has computed the prompt that both have."""
        self._siblings.setdefault(leader, []).append(follower)
        self._leaders[follower] = leader

    def discard(self, follower: Sequence) -> bool:
        """It waits no longer; True if it did."""
        return self._leaders.pop(follower, None) is not None

    def progressed(self, leader: Sequence) -> list[Sequence]:
        """The followers that have what they waited for."""
        ready: list[Sequence] = []
        heap = self._heaps.get(leader)
        if heap is not None:
            while heap and heap[0][0] <= leader.computed:
                ready.append(heapq.heappop(heap)[2])
            if not heap:
                del self._heaps[leader]
        if leader.computed >= leader.n_prompt:
            ready += self._siblings.pop(leader, ())
        return self._freed(ready, leader)

    def left(self, leader: Sequence) -> list[Sequence]:
        """All its followers: it was preempted or is finished, and computes nothing for them."""
        for digest in leader.digests:
            self.arrived(leader, digest)
        ready = [entry[2] for entry in self._heaps.pop(leader, ())]
        return self._freed(ready + self._siblings.pop(leader, []), leader)

    def stalled(self, before: int) -> list[Sequence]:
        """Followers of a prefix whose leader had too little of every plan since number `before`."""
        freed: list[Sequence] = []
        for leader in [x for x in self._heaps if x.last_led < before]:
            freed += self._freed([entry[2] for entry in self._heaps.pop(leader)], leader)
        return freed

    def _freed(self, followers: list[Sequence], leader: Sequence) -> list[Sequence]:
        """Those of them that do follow the leader, once each; they no longer do."""
        freed: list[Sequence] = []
        for follower in followers:
            if self._leaders.get(follower) is leader:
                del self._leaders[follower]
                freed.append(follower)
        return freed
