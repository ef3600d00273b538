"""Admission: which waiting sequences may start, and why the others may not.

A sequence starts if one of `max_num_seqs` places is free and there are pages for all its tokens,
and, beyond these, one for each running sequence that may still grow: whoever starts does not push
another out at once. If there is neither, lower priorities are preempted for it.

1. Among equals in priority, places go in turn to the oldest and to the shortest that waits
   (`Lane`). So the oldest gets one of the next two, once there are tokens of a step for it.
2. If the oldest waits for pages, shorter ones may pass it until they have taken as many pages as
   it needs itself. Then all wait for it.
3. A preempted sequence starts again only when a running one has ended since, or none runs. So it is
   preempted at most once for each that ends before it.
4. A sequence does not compute what another is just computing: it waits for the prompt of its
   sibling, or for a prefix that another brings into the cache; for this one only as long as the
   other has half of the tokens for prompts in each step. So it is no later than by itself.
"""

from __future__ import annotations

import enum

from pellucid.costs import pages_for
from pellucid.scheduling.followers import Followers
from pellucid.scheduling.limits import Limits
from pellucid.scheduling.memory import Memory, Reuse
from pellucid.scheduling.queue import Lane, Queue
from pellucid.scheduling.running import Running
from pellucid.scheduling.sequence import Sequence, State


class Outcome(enum.Enum):
    RUNS = "runs"  # it was admitted
    FOLLOWS = "follows"  # it left the queue until another has computed something
    BLOCKED = "blocked"  # it stays where it is


class Admission:
    """The waiting sequences: those that queue, and those that follow another.

    `shares_work` is whether sequences wait for what others compute.
    """

    def __init__(self, limits: Limits, memory: Memory, running: Running, shares_work: bool) -> None:
        self.queue = Queue()
        self.followers = Followers()
        self.turn = Lane.OLDEST  # who gets the next place, if both lanes want it
        self.plan_number = 0
        self.prefix_queries = 0  # prompt tokens looked up in the prefix cache
        self.prefix_hits = 0  # and found
        self.page_size = limits.page_size
        self._limits = limits
        self._memory = memory
        self._running = running
        self._shares_work = shares_work

    def __len__(self) -> int:
        return len(self.queue) + len(self.followers)

    def begin_plan(self) -> None:
        """A new plan is made."""
        self.plan_number += 1
        self.enqueue(*self.followers.stalled(self.plan_number - 1))

    def enqueue(self, *sequences: Sequence) -> None:
        """They wait: in the queue, or for their siblings."""
        for sequence in sequences:
            if self._follow_sibling(sequence):
                continue
            known = len(self._memory.known_pages(sequence)) * self.page_size
            sequence.size = max(len(sequence.tokens) - known, 1)
            self.queue.add(sequence)

    def drop(self, sequence: Sequence) -> None:
        """It waits no longer."""
        if not self.queue.discard(sequence):
            self.followers.discard(sequence)

    def preempt(self, sequence: Sequence) -> None:
        """A running sequence waits again, at its place by arrival, and has nothing computed."""
        self._memory.changes.preempted[sequence.id] = self._memory.lost(sequence)[0]
        self._running.remove(sequence)
        self._memory.release(sequence)
        sequence.state = State.WAITING
        sequence.n_preemptions += 1
        sequence.ended_before = self._running.n_ended
        self.enqueue(sequence, *self.followers.left(sequence))

    def admit(self, sequence: Sequence, lane: Lane) -> Outcome:
        """Let the first of a lane start, if it may."""
        if self._follow_sibling(sequence):
            return Outcome.FOLLOWS
        if not self._place_for(sequence):
            return Outcome.BLOCKED
        known = self._memory.known_pages(sequence)
        if self._follow_prefix(sequence, known):
            return Outcome.FOLLOWS
        toll = self._toll(sequence, self._memory.reuse(sequence, known))
        if toll is None:
            return Outcome.BLOCKED
        reuse = self._affordable(sequence, known)
        if reuse is None or len(self._running.all) >= self._limits.max_num_seqs:
            reuse = self._by_preempting(sequence, known)
        if reuse is None:
            return Outcome.BLOCKED
        oldest = self.queue.first(Lane.OLDEST)
        if oldest is not None:
            oldest.passed += toll
        self._start(sequence, reuse)
        self.turn = lane.other
        return Outcome.RUNS

    def reason(self, sequence: Sequence) -> str:
        """Why the first in the queue does not run."""
        places = self._limits.max_num_seqs
        if len(self._running.all) >= places:
            return f"all {places} places are taken"
        if self._must_wait_for_an_end(sequence):
            return "was preempted for want of pages: waits until a running sequence ends"
        memory = self._memory
        known = memory.known_pages(sequence)
        need = memory.cost(sequence, memory.without_copy(memory.reuse(sequence, known)))
        headroom = self._headroom(sequence)
        if need + headroom > memory.available:
            kept = f" and {headroom} kept for the answers that grow" if headroom else ""
            return f"needs {_pages(need)}{kept}, {memory.available} free"
        return "waits for its turn in the token budget of a step"

    def _start(self, sequence: Sequence, reuse: Reuse) -> None:
        self.queue.discard(sequence)
        self._memory.admit(sequence, reuse)
        self._running.add(sequence)
        sequence.state = State.RUNNING
        sequence.passed = 0
        sequence.last_led = self.plan_number - 1
        self.followers.expect(sequence, reuse.computed // self.page_size)
        if not sequence.n_preemptions:
            sequence.cached_tokens = reuse.computed
            if self._memory.prefix is not None and not sequence.all_logits:
                self.prefix_queries += sequence.n_prompt
                self.prefix_hits += reuse.computed

    def _follow_sibling(self, sequence: Sequence) -> bool:
        leader = sequence.sibling_of
        if (
            leader is None
            or not self._shares_work
            or leader.state is State.FINISHED
            or leader.computed >= leader.n_prompt
        ):
            return False
        self.queue.discard(sequence)
        self.followers.follow_sibling(sequence, leader)
        return True

    def _follow_prefix(self, sequence: Sequence, known: list[int]) -> bool:
        if not self._shares_work or sequence.all_logits:
            return False
        coming = self.followers.coming(sequence.digests, len(known))
        if coming is None:
            return False
        leader, end = coming
        if leader.last_led < self.plan_number - 1:
            return False
        self.queue.discard(sequence)
        self.followers.follow(sequence, leader, end * self.page_size)
        return True

    def _place_for(self, sequence: Sequence) -> bool:
        """Whether a place is free, or one that a lower priority has."""
        running = self._running
        return len(running.all) < self._limits.max_num_seqs or running.any_below(sequence.priority)

    def _headroom(self, sequence: Sequence) -> int:
        """Pages to be left when the sequence has started."""
        if not self._running.all:
            return 0
        grows = pages_for(len(sequence.tokens), self.page_size) < sequence.max_pages
        return self._running.n_growing + grows

    def _must_wait_for_an_end(self, sequence: Sequence) -> bool:
        return bool(self._running.all) and sequence.ended_before == self._running.n_ended

    def _affordable(self, sequence: Sequence, known: list[int]) -> Reuse | None:
        """What it takes from others, if there are pages for the rest."""
        if self._must_wait_for_an_end(sequence):
            return None
        memory = self._memory
        to_spare = memory.available - self._headroom(sequence)
        reuse = memory.reuse(sequence, known)
        if memory.cost(sequence, reuse) <= to_spare:
            return reuse
        # The source of a copy has to stay for a step: where that is too much, do without.
        reuse = memory.without_copy(reuse)
        return reuse if memory.cost(sequence, reuse) <= to_spare else None

    def _by_preempting(self, sequence: Sequence, known: list[int]) -> Reuse | None:
        """The same, after preempting lower priorities; nobody if that would not be enough."""
        running, memory = self._running, self._memory
        if self._must_wait_for_an_end(sequence) or not running.any_below(sequence.priority):
            return None
        lower = [x for x in running.all.values() if x.priority > sequence.priority]
        freed = sum(memory.lost(x)[1] for x in lower)
        kept = self._headroom(sequence) - sum(len(x.pages) < x.max_pages for x in lower)
        if len(lower) == len(running.all):
            kept = 0
        reuse = memory.without_copy(memory.reuse(sequence, known))
        if memory.cost(sequence, reuse) + kept > memory.available + freed:
            return None
        while (victim := running.victim(sequence.priority)) is not None:
            self.preempt(victim)
            found = self._affordable(sequence, memory.known_pages(sequence))
            if found is not None:
                return found
        return None

    def _toll(self, sequence: Sequence, reuse: Reuse) -> int | None:
        """Pages that it takes from the oldest by starting before it; None if that is too many."""
        oldest = self.queue.first(Lane.OLDEST)
        if oldest is None or oldest is sequence:
            return 0
        memory = self._memory
        need = memory.cost(sequence, reuse)
        theirs = memory.reuse(oldest, memory.known_pages(oldest))
        wanted = memory.cost(oldest, memory.without_copy(theirs)) + self._headroom(oldest)
        if need + wanted <= memory.available:
            return 0
        most = pages_for(len(oldest.tokens), self.page_size)
        return need if oldest.passed + need <= most else None


def _pages(count: int) -> str:
    return f"{count} page" if count == 1 else f"{count} pages"
