"""Scheduler: continuous batching, first come first served.

One step at a time:

1. `plan` takes every running sequence that has one token to compute (decode), then prompts in
   chunks, oldest first, then admits waiting sequences in order, within the limits.
2. The step runs.
3. `apply` moves positions forward and appends the tokens chosen.

Invariants:

1. An admitted sequence can always finish: at admission the pool promises it pages for its
   longest answer, which it takes one by one as it grows. So nothing is ever preempted, and a
   sequence that might not fit waits. (The price: promises that are not used keep others waiting.)
2. Sequences are admitted in the order they came; none overtakes one that waits for pages.
3. Between `plan` and `apply` nothing computed is forgotten: `finish` in between returns the
   pages, which no step can be using by the time the next plan hands them out.
4. A finished sequence holds no page.
5. Without a cache (`Limits.kv_cache` False) every step computes a sequence whole, from
   position 0; the first of a step may then exceed max_num_batched_tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Tokens

from pellucid.cache import PagePool, PageTable
from pellucid.core.errors import BadInput, PromptTooLong
from pellucid.core.plan import Plan, Span
from pellucid.costs import pages_for
from pellucid.scheduling.limits import Limits
from pellucid.scheduling.sequence import Sequence, State


class Scheduler:
    """Decides what each step computes."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = PagePool(limits.n_pages)
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def idle(self) -> bool:
        """True if there is nothing to do."""
        return not self._waiting and not self._running

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
        if self._pages_for(sequence) > limits.n_pages:
            raise BadInput(
                f"{sequence.max_positions} positions need {self._pages_for(sequence)} pages of "
                f"{limits.page_size}, and the cache has {limits.n_pages}: lower max_tokens or "
                "give the cache more memory"
            )
        self._waiting.append(sequence)

    def plan(self) -> Plan:
        """What the next step computes; empty if there is nothing to do.

        Admits sequences and takes pages for the positions planned. Whatever waits, a plan is
        never empty unless the scheduler is idle, so every sequence gets its turn.
        """
        budget = self.limits.max_num_batched_tokens
        spans: list[Span] = []
        # Decode first (False sorts before True); otherwise in the order of admission.
        for sequence in sorted(self._running.values(), key=lambda s: s.pending > 1):
            budget -= self._extend(spans, sequence, budget)
        while self._waiting and budget > 0 and self._admissible(self._waiting[0]):
            if not self.limits.kv_cache and spans and self._waiting[0].pending > budget:
                break
            sequence = self._waiting.popleft()
            self._admit(sequence)
            budget -= self._extend(spans, sequence, budget)
        return Plan(tuple(spans), self.limits.page_size)

    def apply(self, plan: Plan, tokens: Mapping[int, Tokens[int]]) -> None:
        """The step is done: its positions are computed, and `tokens` maps each sequence that
        gave some to the tokens chosen. Sequences finished meanwhile are passed over."""
        for span in plan.spans:
            sequence = self._running.get(span.sequence)
            if sequence is None:
                continue
            sequence.computed = span.end if self.limits.kv_cache else 0
            sequence.tokens.extend(tokens.get(span.sequence, ()))

    def finish(self, sequence: Sequence) -> None:
        """The sequence is over, at its end or because nobody wants it: return its pages."""
        if sequence.state is State.FINISHED:
            return
        if sequence.state is State.WAITING:
            self._waiting.remove(sequence)
        else:
            del self._running[sequence.id]
            assert sequence.table is not None
            sequence.table.release()
        sequence.state = State.FINISHED

    def _pages_for(self, sequence: Sequence) -> int:
        return pages_for(sequence.max_positions, self.limits.page_size)

    def _admissible(self, sequence: Sequence) -> bool:
        return (
            len(self._running) < self.limits.max_num_seqs
            and self._pages_for(sequence) <= self.pool.n_unreserved
        )

    def _admit(self, sequence: Sequence) -> None:
        pages = self._pages_for(sequence)
        sequence.table = PageTable(self.pool, self.limits.page_size, pages)
        sequence.state = State.RUNNING
        self._running[sequence.id] = sequence

    def _extend(self, spans: list[Span], sequence: Sequence, budget: int) -> int:
        """Plan the sequence's next positions, as many as fit; returns how many."""
        count = min(sequence.pending, budget)
        if not self.limits.kv_cache:
            whole = sequence.pending
            count = whole if whole <= budget or not spans else 0
        if count <= 0:
            return 0
        start, end = sequence.computed, sequence.computed + count
        assert sequence.table is not None
        sequence.table.cover(end)
        last = end == len(sequence.tokens)
        n_logits = count if sequence.all_logits else int(last)
        tokens = tuple(sequence.tokens[start:end])
        spans.append(Span(sequence.id, start, tokens, sequence.table.pages, n_logits))
        return count
