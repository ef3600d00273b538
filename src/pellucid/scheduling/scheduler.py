"""Scheduler: what each step computes.

One step at a time:

1. `plan` takes the pages that running sequences have come to need, preempting others if there are
   too few. Every sequence with one token to compute (decode) has its part in the step. What is
   left of the step's tokens goes to prompts, in chunks, as the policy shares it out; waiting
   sequences start within the limits. What prompts leave goes to those in decode that asked for
   room for a draft, as far as there are pages: `Plan.room`.
2. The step runs, with drafts in the plan if somebody made some (`Plan.with_drafts`).
3. `apply` moves positions forward and appends the tokens chosen: of a draft what was accepted, and
   one more. Pages of what was not are given back.

Invariants:

1. A sequence that can never fit is refused when it is added. So the first in rank (priority, then
   arrival) of those that run can always go on: it is never preempted, and if all others are, it has
   every page. It ends after finitely many steps, and then the next is first: no livelock.
2. A preempted sequence keeps its tokens, gives back its pages, and is computed again; what the
   prefix cache still has of it is not. It starts again only after another has ended: no thrash.
3. Decode is never put off: a running sequence with one token to compute is in every plan.
4. A plan is never empty unless there is nothing to do, or everything that runs awaits `finish`.
5. A plan that was not applied is made again, its copies too: what was computed for it counts for
   nothing.
6. Between `plan` and `apply` sequences may `finish`. Their pages may go to others in the next plan,
   when no step can be using them.
7. A finished sequence owns no page.
8. Without a cache (`Limits.kv_cache` False) every step computes a sequence whole, from position 0;
   the first of a step may then exceed max_num_batched_tokens. There is no room for drafts.
9. A draft preempts nobody and delays no prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Tokens
from itertools import islice
from types import MappingProxyType

from pellucid.cache import Digest
from pellucid.core.errors import BadInput, PromptTooLong
from pellucid.core.plan import Plan, Span
from pellucid.core.record import PageChanges, PageCounts, PageMap
from pellucid.costs import pages_for
from pellucid.scheduling.admission import Admission
from pellucid.scheduling.limits import Limits
from pellucid.scheduling.memory import Memory
from pellucid.scheduling.policy import Chunks, Continuous, Policy, Static, Uncached
from pellucid.scheduling.running import Running
from pellucid.scheduling.sequence import Sequence, State

_NONE: Mapping[int, int] = MappingProxyType({})


class Scheduler:
    """Decides what each step computes.

    `changes` tells what happened to pages from one plan to the end of the next. `digest` finds
    pages in the prefix cache; see `pellucid.cache.prefix`.
    """

    def __init__(self, limits: Limits, digest: Digest | None = None) -> None:
        self.limits = limits
        self.changes = PageChanges()
        self._memory = Memory(limits, digest)
        self._running = Running(self._memory, limits.kv_cache)
        self._policy = _policy(limits)
        self._admission = Admission(limits, self._memory, self._running, self._policy.shares_work)
        self._ahead: list[Sequence] = []  # those that the last plan took pages for a draft for
        self._n_added = 0

    @property
    def n_waiting(self) -> int:
        return len(self._admission)

    @property
    def n_running(self) -> int:
        return len(self._running.all)

    @property
    def decoding(self) -> Collection[Sequence]:
        """The running sequences with one token to compute: those that may look ahead."""
        return self._running.decoding.values()

    @property
    def idle(self) -> bool:
        """True if there is nothing to do."""
        return not self._running.all and not len(self._admission)

    @property
    def prefix_queries(self) -> int:
        """Tokens of prompts that were looked up in the prefix cache."""
        return self._admission.prefix_queries

    @property
    def prefix_hits(self) -> int:
        """Of these, the tokens that did not have to be computed."""
        return self._admission.prefix_hits

    def cached_tokens(self, sequence: Sequence) -> int:
        """Tokens of a prompt that the prefix cache holds now; nothing changes."""
        return len(self._memory.known_pages(sequence)) * self.limits.page_size

    def page_counts(self) -> PageCounts:
        return self._memory.counts()

    def page_map(self, *, with_tokens: bool = False) -> PageMap:
        """Who owns which page, and what the prefix cache holds."""
        return self._memory.page_map(self._running.all.values(), with_tokens)

    def waiting(self, most: int | None = None) -> list[tuple[int, str]]:
        """Who waits, and why: (sequence id, reason), of `most` at the most. In the order of the
        queue; last those that wait for what another computes."""
        admission = self._admission
        reasons: list[tuple[int, str]] = []
        for ahead, sequence in enumerate(islice(admission.queue, most)):
            if not ahead:
                first, why = sequence.id, admission.reason(sequence)
                reasons.append((first, why))
            else:
                reasons.append((sequence.id, f"{ahead} before it, first {first}: {why}"))
        followers = admission.followers
        pairs = followers.items() if most is None else followers.some(most - len(reasons))
        for follower, leader in pairs:
            what = "prompt" if follower.sibling_of is leader else "prefix"
            reasons.append((follower.id, f"waits for {leader.id} to compute the {what} they share"))
        return reasons

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence.

        Raises `PromptTooLong`, or `BadInput` with the numbers, if it could never run.
        """
        limits = self.limits
        if sequence.n_prompt + sequence.max_tokens > limits.max_model_len:
            if sequence.n_prompt + 1 > limits.max_model_len:
                raise PromptTooLong(sequence.n_prompt, limits.max_model_len)
            raise BadInput(
                f"the prompt's {sequence.n_prompt} tokens and {sequence.max_tokens} of the answer "
                f"exceed the context of {limits.max_model_len}: lower max_tokens"
            )
        sequence.max_pages = pages_for(sequence.max_positions, limits.page_size)
        if sequence.max_pages > limits.n_pages:
            raise BadInput(
                f"{sequence.max_positions} positions need {sequence.max_pages} pages of "
                f"{limits.page_size}, and the cache has {limits.n_pages}: lower max_tokens or "
                "give the cache more memory"
            )
        self._n_added += 1
        sequence.arrival = self._n_added
        self._admission.enqueue(sequence)

    def plan(self, lookahead: Mapping[int, int] = _NONE) -> Plan:
        """What the next step computes; empty if there is nothing to do.

        `lookahead`: for how many positions after their last token sequences in decode want room.
        """
        running = self._running
        self._memory.tick()
        self._admission.begin_plan()
        if self._ahead:
            self._give_back()
        if running.short:
            self._grow()
        budget = self.limits.max_num_batched_tokens - len(running.decoding)
        chunks: Chunks = {}
        if running.prefilling or self._admission.queue:
            chunks = self._policy.share_out(self._admission, running, budget)
        room = self._look_ahead(lookahead, budget - sum(chunks.values())) if lookahead else {}
        # Span(...) by way of its base takes a third less time, and there are hundreds.
        new = tuple.__new__
        spans = [
            new(Span, (x.id, x.computed, (x.tokens[-1],), x.pages, 1))
            for x in running.decoding.values()
        ]
        copies = self._add_chunks(spans, chunks, budget) if chunks else ()
        self._memory.tell_owned()
        self.changes, self._memory.changes = self._memory.changes, PageChanges()
        self.changes.copied.extend(copies)
        return Plan(tuple(spans), self.limits.page_size, copies, room)

    def apply(self, plan: Plan, tokens: Mapping[int, Tokens[int]]) -> None:
        """The step is done: its positions are computed, and `tokens` maps each sequence that
        gave some to the tokens chosen. Sequences finished meanwhile are passed over."""
        running, memory, page_size = self._running, self._memory, self.limits.page_size
        everyone, decoding = running.all, running.decoding
        self._ahead.clear()
        memory.told()
        for span in plan.spans:
            chosen = tokens.get(span.sequence, ())
            sequence = decoding.get(span.sequence)
            if sequence is not None and span.sequence in plan.room:
                self._accept(sequence, span.start, chosen)
                continue
            if sequence is not None and len(chosen) == 1:  # the common case, made short
                sequence.tokens.append(chosen[0])
                sequence.computed = computed = span.start + 1
                if not computed % page_size:
                    memory.store(sequence)
                    running.short[sequence.id] = sequence
                continue
            sequence = everyone.get(span.sequence)
            if sequence is not None:
                sequence.tokens.extend(chosen)
                self._settle(sequence, span.end)

    def finish(self, sequence: Sequence) -> None:
        """The sequence is over, at its end or because nobody wants it: return its pages."""
        if sequence.state is State.FINISHED:
            return
        admission, running = self._admission, self._running
        if running.all.get(sequence.id) is sequence:
            running.remove(sequence)
            running.n_ended += 1
            self._memory.release(sequence)
            self._memory.changes.ended.append(sequence.id)
        else:  # it waits, or another scheduler had it
            admission.drop(sequence)
        sequence.state = State.FINISHED
        admission.enqueue(*admission.followers.left(sequence))

    def check(self) -> None:
        """Assert that every page is owned exactly as often as counted (for tests)."""
        running = self._running
        self._memory.check(list(running.all.values()))
        growing = [x for x in running.all.values() if len(x.pages) < x.max_pages]
        assert running.n_growing == len(growing)
        assert not running.decoding.keys() & running.prefilling.keys()
        for sequence in running.all.values():
            spare = len(sequence.pages) - pages_for(len(sequence.tokens), self.limits.page_size)
            assert spare <= 0 or sequence in self._ahead, "a draft's pages were not given back"

    def _grow(self) -> None:
        """Give pages to those that have come to need them; preempt others for it if need be."""
        running, memory = self._running, self._memory
        while sum(map(memory.missing, running.short.values())) > memory.available:
            victim = running.victim()
            if victim is None:
                raise ValueError("a sequence has more tokens than it was admitted for")
            self._admission.preempt(victim)
        for sequence in running.short.values():
            running.grow(sequence)
        running.short.clear()

    def _give_back(self) -> None:
        """The pages of drafts of a plan that was never applied."""
        for sequence in self._ahead:
            if sequence.state is State.RUNNING:
                self._running.trim(sequence)
        self._ahead.clear()

    def _look_ahead(self, lookahead: Mapping[int, int], budget: int) -> dict[int, int]:
        """How many positions there is room for after the last token of those that asked."""
        room: dict[int, int] = {}
        for id, wanted in lookahead.items():
            sequence = self._running.decoding.get(id)
            if sequence is None:  # preempted meanwhile, or over
                continue
            # The last token of an answer is never computed.
            most = sequence.n_prompt + sequence.max_tokens - len(sequence.tokens) - 1
            positions = min(wanted, most, budget)
            if positions > 0:
                found = self._running.reserve(sequence, positions)
                if found > 0:
                    self._ahead.append(sequence)
                    room[sequence.id] = found
                    budget -= found
        return room

    def _accept(self, sequence: Sequence, start: int, chosen: Tokens[int]) -> None:
        """The last known token is computed, and of its draft all but the last of `chosen`."""
        running = self._running
        sequence.tokens.extend(chosen)
        sequence.computed = start + max(len(chosen), 1)
        self._memory.store(sequence)
        running.trim(sequence)
        running.settle(sequence)

    def _add_chunks(
        self, spans: list[Span], chunks: Chunks, budget: int
    ) -> tuple[tuple[int, int], ...]:
        """A span for each chunk; returns the copies that must come before."""
        copies: list[tuple[int, int]] = []
        for sequence, count in chunks.items():
            if count <= 0 or sequence.state is not State.RUNNING:  # preempted meanwhile
                continue
            start, end = sequence.computed, sequence.computed + count
            last = end == len(sequence.tokens)
            scored = sequence.all_logits and start < sequence.n_prompt
            n_logits = max(min(count, end - sequence.first_logit), last) if scored else int(last)
            tokens = tuple(sequence.tokens[start:end])
            spans.append(Span(sequence.id, start, tokens, sequence.pages, n_logits))
            if last or 2 * count + 1 >= budget:
                sequence.last_led = self._admission.plan_number
            if sequence.copy is not None:
                copies.append(sequence.copy)
        return tuple(copies)

    def _settle(self, sequence: Sequence, computed: int) -> None:
        """A part of a prompt is computed, or an unusual number of tokens came."""
        if not self.limits.kv_cache:
            computed = 0
        followers = self._admission.followers
        first, sequence.computed = sequence.n_stored, computed
        self._memory.copied(sequence)
        self._memory.store(sequence)
        for digest in sequence.digests[first : computed // self.limits.page_size]:
            followers.arrived(sequence, digest)
        self._running.settle(sequence)
        self._admission.enqueue(*followers.progressed(sequence))


def _policy(limits: Limits) -> Policy:
    static = limits.policy == "static"
    if not limits.kv_cache:
        return Uncached(static)
    return Static() if static else Continuous()
