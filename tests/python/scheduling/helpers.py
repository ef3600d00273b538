"""Driving a scheduler by hand."""

from __future__ import annotations

from collections.abc import Iterable

from pellucid.core.plan import Plan
from pellucid.scheduling import Limits, Scheduler, Sequence


def limits(**changes: object) -> Limits:
    fields: dict[str, object] = {
        "max_model_len": 64,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "n_pages": 16,
        "page_size": 4,
    }
    return Limits(**{**fields, **changes})  # type: ignore[arg-type]


def outline(plan: Plan) -> list[tuple[int, int, int, int]]:
    """(sequence, start, end, logits wanted) of each span."""
    return [(span.sequence, span.start, span.end, span.n_logits) for span in plan.spans]


def apply(scheduler: Scheduler, plan: Plan) -> None:
    """One token, 7, for each sequence that has logits."""
    scheduler.apply(plan, {span.sequence: (7,) for span in plan.spans if span.n_logits})


def step(scheduler: Scheduler) -> list[tuple[int, int, int, int]]:
    plan = scheduler.plan()
    apply(scheduler, plan)
    return outline(plan)


def run(scheduler: Scheduler, sequences: Iterable[Sequence]) -> int:
    """Run sequences that were added to their ends; returns how many steps it took."""
    alive = list(sequences)
    for steps in range(100_000):
        if not alive:
            return steps
        step(scheduler)
        for sequence in list(alive):
            if len(sequence.tokens) == sequence.n_prompt + sequence.max_tokens:
                scheduler.finish(sequence)
                alive.remove(sequence)
    raise AssertionError(f"never ended: {scheduler.waiting()}")
