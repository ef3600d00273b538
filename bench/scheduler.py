"""What the scheduler costs by itself: time of plan and apply, and memory over many steps.

    python bench/scheduler.py                  256 running and 10,000 waiting, milliseconds a step
    python bench/scheduler.py --steps 1000000  one history of so many steps; memory by tenths

No model runs: each sequence is given a token for each position whose logits it wants.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import resource
import statistics
import time

from pellucid.core.plan import Plan
from pellucid.scheduling import Limits, Scheduler, Sequence

RUNNING, WAITING = 256, 10_000


class Traffic:
    """A scheduler that always has `running` places and `waiting` sequences in its queue: who
    reaches its end is replaced. Half of the prompts begin with one of four common prefixes."""

    def __init__(self, limits: Limits, waiting: int, prompt: int, answer: int) -> None:
        self.scheduler = Scheduler(limits)
        self.alive: dict[int, Sequence] = {}
        self._rng = random.Random(0)
        self._ids = itertools.count()
        self._prompt, self._answer = prompt, answer
        self._prefixes = [self._tokens(prompt // 2) for _ in range(4)]
        self._target = limits.max_num_seqs + waiting
        self.n_preempted = 0
        self.refill()

    def refill(self) -> None:
        while len(self.alive) < self._target:
            prefix = self._rng.choice(self._prefixes) if self._rng.random() < 0.5 else []
            tokens = prefix + self._tokens(self._rng.randint(1, self._prompt - len(prefix)))
            answer = self._rng.randint(1, self._answer)
            sequence = Sequence(next(self._ids), tokens, answer)
            self.alive[sequence.id] = sequence
            self.scheduler.add(sequence)

    def plan(self) -> Plan:
        plan = self.scheduler.plan()
        self.n_preempted += len(self.scheduler.changes.preempted)
        return plan

    def apply(self, plan: Plan, tokens: dict[int, tuple[int]]) -> list[Sequence]:
        """Returns the sequences that are at their end; the caller finishes them."""
        self.scheduler.apply(plan, tokens)
        ended = [self.alive[i] for i in tokens if self._at_end(self.alive[i])]
        for sequence in ended:
            del self.alive[sequence.id]
        return ended

    def choose(self, plan: Plan) -> dict[int, tuple[int]]:
        return {s.sequence: (self._rng.randrange(50_000),) for s in plan.spans if s.n_logits}

    def _at_end(self, sequence: Sequence) -> bool:
        return len(sequence.tokens) == sequence.n_prompt + sequence.max_tokens

    def _tokens(self, length: int) -> list[int]:
        return [self._rng.randrange(50_000) for _ in range(length)]


def step_times(traffic: Traffic, steps: int) -> list[float]:
    """Milliseconds of plan, apply and finish, for each step."""
    times = []
    for _ in range(steps):
        begin = time.thread_time()
        plan = traffic.plan()
        planned = time.thread_time() - begin
        tokens = traffic.choose(plan)
        begin = time.thread_time()
        ended = traffic.apply(plan, tokens)
        for sequence in ended:
            traffic.scheduler.finish(sequence)
        times.append(1e3 * (planned + time.thread_time() - begin))
        traffic.refill()
    return times


def measure_steps(pages: int, name: str, steps: int) -> None:
    limits = Limits(4096, RUNNING, 2048, pages, 16, prefix_caching=True)
    traffic = Traffic(limits, WAITING, 512, 256)
    step_times(traffic, 300)  # until all places are taken
    traffic.n_preempted = 0
    times = sorted(step_times(traffic, steps))
    print(
        f"{name}: {traffic.scheduler.n_running} running, {traffic.scheduler.n_waiting} waiting: "
        f"median {statistics.median(times):.3f} ms, mean {statistics.mean(times):.3f}, "
        f"99 % {times[len(times) * 99 // 100]:.3f}, worst {times[-1]:.3f}; "
        f"{traffic.n_preempted} preemptions in {steps} steps"
    )


def endure(steps: int) -> None:
    """One long history under pressure of pages; memory must not grow."""
    traffic = Traffic(Limits(256, 8, 64, 60, 8, prefix_caching=True), 30, 60, 60)
    for tenth in range(10):
        step_times(traffic, steps // 10)
        gc.collect()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        objects = len(gc.get_objects())
        counts = traffic.scheduler.page_counts()
        traffic.scheduler.check()
        print(
            f"{(tenth + 1) * steps // 10} steps: {objects} objects, peak {peak:.1f} MiB, "
            f"{traffic.n_preempted} preemptions, {counts}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, help="one long history, for leaks")
    asked = parser.parse_args()
    if asked.steps:
        endure(asked.steps)
    else:
        measure_steps(20_000, "pages enough ", 1000)
        measure_steps(6_000, "pages scarce ", 1000)


if __name__ == "__main__":
    main()
