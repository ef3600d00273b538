"""Random histories of the scheduler: whatever comes, pages hold what they should, are owned as
often as counted, and every request ends as if it had been alone."""

from __future__ import annotations

import zlib
from collections.abc import Sequence as Tokens

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pellucid.core.plan import Plan
from pellucid.scheduling import Limits, Scheduler, Sequence, State
from tests.python.scheduling.fake_model import FakeModel, answer_alone

TEXTS = ((1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), (1, 2, 0, 1, 2, 2, 0, 1, 0, 2, 1, 1), (2, 1, 0))


def weak_digest(parent: bytes, tokens: Tokens[int]) -> bytes:
    """Collides all the time: what is found must not depend on luck."""
    return bytes([zlib.crc32(parent + bytes(tokens)) % 5])


def prompts() -> st.SearchStrategy[list[int]]:
    """Tokens that often begin alike."""
    return st.builds(
        lambda text, end, tail: list(text[:end]) + tail,
        st.sampled_from(TEXTS),
        st.sampled_from((1, 4, 6, 8, 12)),
        st.just([]) | st.lists(st.integers(0, 2), max_size=9),
    )


class Histories(RuleBasedStateMachine):
    """A scheduler, a fake model, and somebody who asks, leaves and interrupts."""

    @initialize(
        data=st.data(),
        page_size=st.integers(1, 5),
        capacity=st.integers(16, 48),
        n_seqs=st.integers(1, 6),
        spare=st.sampled_from((0, 1, 3, 8, 30)),
        modes=st.sampled_from(
            [(True, True, "continuous")] * 4
            + [(True, False, "continuous"), (True, True, "static"), (False, True, "continuous")]
        ),
        weak=st.booleans(),
    )
    def begin(
        self,
        data: st.DataObject,
        page_size: int,
        capacity: int,
        n_seqs: int,
        spare: int,
        modes: tuple[bool, bool, str],
        weak: bool,
    ) -> None:
        kv_cache, caching, policy = modes
        n_pages = max(capacity // page_size, 1)
        self.limits = Limits(
            64, n_seqs, n_seqs + spare, n_pages, page_size, kv_cache, caching, policy
        )
        self.scheduler = Scheduler(self.limits, weak_digest if weak else None)
        self.model = FakeModel(n_pages, page_size)
        self.alive: dict[int, Sequence] = {}
        self.scored: dict[int, set[int]] = {}  # positions whose logits came
        self.ended: list[int] = []  # ids of those that ended while they ran
        self.preempted: dict[int, int] = {}  # how many had ended when it was preempted
        self.n_kept = 0
        self.n_ids = 0
        self.batch: set[int] = set()
        self.wanted: dict[int, int] = {}  # sequence: positions asked for a draft
        self.answering: set[int] = set()  # got a token, and may run on

    @rule(
        prompt=prompts(),
        max_tokens=st.sampled_from((0, 1, 5, 12, 20)),
        priority=st.sampled_from((0, 0, 0, 1, -1)),
        salt=st.sampled_from((b"", b"", b"tenant")),
        all_logits=st.sampled_from((False, False, False, True)),
        n=st.sampled_from((1, 1, 2, 3)),
    )
    def ask(
        self,
        prompt: list[int],
        max_tokens: int,
        priority: int,
        salt: bytes,
        all_logits: bool,
        n: int,
    ) -> None:
        positions = len(prompt) + max(max_tokens - 1, 0)
        if -(-positions // self.limits.page_size) > self.limits.n_pages:
            return
        first: Sequence | None = None
        for _ in range(n):
            sequence = Sequence(
                self.n_ids,
                prompt,
                max_tokens,
                all_logits=all_logits,
                priority=priority,
                salt=salt,
                sibling_of=first,
            )
            first = first or sequence
            self.n_ids += 1
            self.alive[sequence.id] = sequence
            self.scored[sequence.id] = set()
            self.scheduler.add(sequence)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.alive))))

    @precondition(lambda self: self.answering)
    @rule(
        data=st.data(),
        count=st.integers(1, 7),
        n_right=st.integers(0, 7),
        n_left_out=st.integers(0, 2),
    )
    def speculate(self, data: st.DataObject, count: int, n_right: int, n_left_out: int) -> None:
        """Some ask for room, and their drafts are right as far as it goes."""
        asking = data.draw(st.sets(st.sampled_from(sorted(self.answering))))
        self.wanted = dict.fromkeys(asking, count)
        plan = self.plan()
        drafts = {}
        for i, room in plan.room.items():
            sequence = self.alive[i]
            length = len(sequence.tokens) - sequence.n_prompt
            whole = answer_alone(sequence, self.seed(i), length + room)[len(sequence.tokens) :]
            whole[n_right:] = [(token + 1) % 3 for token in whole[n_right:]]
            drafts[i] = tuple(whole[: max(room - n_left_out, 0)])
        plan = plan.with_drafts(drafts)
        self.check_budget(plan)
        self.apply(plan, self.model.run(plan, self.alive, self.seed))

    @rule(count=st.integers(1, 6))
    def steps(self, count: int) -> None:
        for _ in range(count):
            plan = self.plan()
            self.apply(plan, self.model.run(plan, self.alive, self.seed))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def leave_in_a_step(self, data: st.DataObject) -> None:
        plan = self.plan()
        chosen = self.model.run(plan, self.alive, self.seed)
        self.end(data.draw(st.sampled_from(sorted(self.alive))))
        self.apply(plan, chosen)

    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        """A step is cut off somewhere, and never applied."""
        plan = self.plan()
        n_spans = data.draw(st.integers(0, len(plan.spans)))
        if data.draw(st.booleans()):
            self.model.run(plan, self.alive, self.seed, n_spans)

    @invariant()
    def pages_are_owned_as_counted(self) -> None:
        self.scheduler.check()
        counts = self.scheduler.page_counts()
        assert counts.free + counts.cached + counts.owned == self.limits.n_pages
        waiting = [i for i, x in self.alive.items() if x.state is State.WAITING]
        assert sorted(i for i, _ in self.scheduler.waiting()) == waiting
        assert self.scheduler.n_waiting == len(waiting)
        assert self.scheduler.n_running == len(self.alive) - len(waiting)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(5000):
            if not self.alive:
                break
            self.steps(1)
        assert not self.alive, self.scheduler.waiting()
        assert self.scheduler.idle and not self.plan().spans
        counts = self.scheduler.page_counts()
        assert (counts.owned, counts.cached) == (0, self.n_kept)
        self.scheduler.check()

    def seed(self, sequence: int) -> int:
        return sequence % 2

    def plan(self) -> Plan:
        ran = {i for i, x in self.alive.items() if x.state is State.RUNNING}
        first = min((self.alive[i] for i in ran), key=lambda x: x.rank, default=None)
        decoding = ran & self.answering
        plan = self.scheduler.plan(self.wanted)
        self.scheduler.check()
        changes = self.scheduler.changes
        self.n_kept += len(changes.cached) - len(changes.evicted)
        assert tuple(changes.copied) == plan.copies
        for i, room in plan.room.items():
            sequence = self.alive[i]
            left = sequence.n_prompt + sequence.max_tokens - len(sequence.tokens)
            assert 0 < room <= min(self.wanted[i], left - 1)
            assert len(sequence.pages) * self.limits.page_size >= len(sequence.tokens) + room
        assert plan.room.keys() <= self.wanted.keys()
        self.wanted = {}
        self.answering -= changes.preempted.keys()
        self.check_preemption(first, ran)
        self.check_spans(plan)
        computed = {span.sequence for span in plan.spans}
        assert bool(plan.spans) == bool(self.alive)
        if self.limits.kv_cache:
            assert decoding - changes.preempted.keys() <= computed, "decode was put off"
        if self.limits.policy == "static":
            self.check_batch()
        return plan

    def check_preemption(self, first: Sequence | None, ran: set[int]) -> None:
        """The first in rank gives way to better ones only; others come back when one has ended."""
        preempted = self.scheduler.changes.preempted
        running = {i: x for i, x in self.alive.items() if x.state is State.RUNNING}
        for i in running.keys() & self.preempted.keys() - ran:
            assert len(self.ended) > self.preempted[i] or not ran - preempted.keys(), "thrash"
        for i, lost in preempted.items():
            assert i in ran and 0 <= lost < len(self.alive[i].tokens)
            self.preempted[i] = len(self.ended)
        if first is not None and first.id in preempted:
            assert any(x.priority < first.priority for x in running.values())

    def check_spans(self, plan: Plan) -> None:
        limits = self.limits
        assert len({span.sequence for span in plan.spans}) == len(plan.spans)
        assert len(plan.spans) <= limits.max_num_seqs
        self.check_budget(plan)
        for span in plan.spans:
            sequence = self.alive[span.sequence]
            assert list(span.tokens) == sequence.tokens[span.start : span.end]
            last = span.end == len(sequence.tokens)
            if not sequence.all_logits:
                assert span.n_logits == last
            else:
                prompt = span.start < sequence.n_prompt
                assert span.n_logits == (len(span.tokens) if prompt else last)
            if not limits.kv_cache:
                assert span.start == 0 and last

    def check_budget(self, plan: Plan) -> None:
        if self.limits.kv_cache or len(plan.spans) > 1:
            assert plan.n_tokens <= self.limits.max_num_batched_tokens

    def check_batch(self) -> None:
        """Nobody joins a static batch once it runs."""
        running = {i for i, x in self.alive.items() if x.state is State.RUNNING}
        self.batch &= running
        assert not self.batch or running <= self.batch
        self.batch = running

    def apply(self, plan: Plan, chosen: dict[int, tuple[int, ...]]) -> None:
        tokens = {}
        for span in plan.spans:
            sequence = self.alive.get(span.sequence)
            if sequence is None:
                continue
            self.scored[span.sequence].update(range(span.end - span.n_logits, span.end))
            if sequence.max_tokens and span.end >= len(sequence.tokens):
                tokens[span.sequence] = chosen[span.sequence]
        self.scheduler.apply(plan, tokens)
        self.scheduler.check()
        self.answering |= tokens.keys()
        for sequence in list(self.alive.values()):
            n_chosen = len(sequence.tokens) - sequence.n_prompt
            scored = len(sequence.tokens) - 1 in self.scored[sequence.id]
            if n_chosen == sequence.max_tokens and (n_chosen or scored):
                assert sequence.tokens == answer_alone(sequence, self.seed(sequence.id), n_chosen)
                if sequence.all_logits:
                    assert set(range(sequence.n_prompt)) <= self.scored[sequence.id]
                self.end(sequence.id)

    def end(self, sequence: int) -> None:
        gone = self.alive.pop(sequence)
        if gone.state is State.RUNNING:
            self.ended.append(sequence)
        self.scheduler.finish(gone)
        self.scheduler.finish(gone)
        assert gone.pages == () and gone.copy is None


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
