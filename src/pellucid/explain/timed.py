"""One answer of the engine, timed: where the first token's wait and each later one's went."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pellucid.core.cost import Cost
from pellucid.core.errors import PellucidError
from pellucid.core.params import SamplingParams
from pellucid.core.record import Phases, StepRecord
from pellucid.engine.llm import LLM
from pellucid.engine.stream import Stream

# Runs of the same answer; the one in the middle is shown, the others say how steady it is.
RUNS = 3
_LONG_RUN_SECONDS = 4.0  # one is enough then

# What a phase of a StepRecord is called where people read it.
PHASE_NAMES = {"deliver": "detokenize and deliver"}


@dataclass(frozen=True, slots=True)
class Split:
    """A wait in seconds, and its parts by name, in order; what is in none of them is the rest."""

    seconds: float
    parts: tuple[tuple[str, float], ...]

    @property
    def unaccounted(self) -> float:
        return self.seconds - sum(seconds for _, seconds in self.parts)


@dataclass(frozen=True, slots=True)
class Stage:
    """Prefill, or one step of decode as the middle of all: its forward pass in seconds, the cost
    that its records state, its positions, and how many steps it took."""

    seconds: float
    cost: Cost
    tokens: int
    steps: int


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer and its times.

    first, later: the wait for the first token, and between two later ones on average (None for an
    answer of one token). spread: the fewest and most seconds of each over all runs. held: positions
    computed after some step, and pages that the sequence owned then. guessed, accepted: tokens of
    drafts, in the run that is shown.
    """

    token_ids: tuple[int, ...]
    text: str
    first: Split
    later: Split | None
    prefill: Stage
    decode: Stage | None
    first_spread: tuple[float, float]
    later_spread: tuple[float, float] | None
    held: tuple[int, int] | None
    runs: int
    guessed: int = 0
    accepted: int = 0

    @property
    def tokens_of_a_step(self) -> float:
        """How many a step after the first token gave on average."""
        return (len(self.token_ids) - 1) / self.decode.steps if self.decode else 1.0


@dataclass(slots=True)
class _Run:
    """One run as it was seen: times of the monotonic clock, in seconds."""

    received: float
    tokenized: float
    records: list[StepRecord] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    token_ids: tuple[int, ...] = ()
    text: str = ""

    @property
    def first_steps(self) -> list[StepRecord]:
        """The steps up to the one that gave the first token."""
        steps = 1 + next(i for i, record in enumerate(self.records) if record.tokens)
        return self.records[:steps]

    @property
    def later_steps(self) -> list[StepRecord]:
        return self.records[len(self.first_steps) :]

    def first(self) -> Split:
        steps = self.first_steps
        end = steps[-1].start + steps[-1].total_seconds
        parts = (
            ("tokenize", self.tokenized - self.received),
            ("queue", steps[0].start - self.tokenized),
            *_phases(steps, 1),
        )
        return Split(end - self.received, parts)

    def later(self) -> Split | None:
        steps = self.later_steps
        if not steps:
            return None
        begin, last = self.first_steps[-1], steps[-1]
        waited = last.start + last.total_seconds - begin.start - begin.total_seconds
        tokens = sum(len(given) for step in steps for given in step.tokens.values())
        return Split(waited / tokens, _phases(steps, tokens))


def time_answer(llm: LLM, prompt: str, n_tokens: int) -> Timed:
    """Answer `prompt` with `n_tokens` tokens, greedily, a few times.

    `llm` must be idle and without a prefix cache, so that each run computes the whole prompt. One
    run before them is not counted: it compiles. Raises what `LLM.generate` raises.
    """
    (timed,) = time_in_turn([llm], prompt, n_tokens)
    return timed


def time_in_turn(llms: Sequence[LLM], prompt: str, n_tokens: int) -> list[Timed]:
    """The same of each, run by run in turn: a machine whose pace changes changes it for all."""
    for llm in llms:
        _run(llm, prompt, min(n_tokens, 2))
    rounds = [[_run(llm, prompt, n_tokens) for llm in llms]]
    took = sum(record.total_seconds for run in rounds[0] for record in run.records)
    while len(rounds) < RUNS and took < _LONG_RUN_SECONDS * len(llms):
        rounds.append([_run(llm, prompt, n_tokens) for llm in llms])
    return [_timed(runs) for runs in zip(*rounds, strict=True)]


def _timed(runs: Sequence[_Run]) -> Timed:
    firsts = [run.first().seconds for run in runs]
    laters = [later.seconds for run in runs if (later := run.later()) is not None]
    shown = sorted(runs, key=lambda run: run.records[-1].start - run.received)[len(runs) // 2]
    return Timed(
        shown.token_ids,
        shown.text,
        shown.first(),
        shown.later(),
        _prefill(shown),
        _decode(shown),
        (min(firsts), max(firsts)),
        (min(laters), max(laters)) if laters else None,
        shown.held[-1] if shown.held else None,
        len(runs),
        sum(len(one.draft) for record in shown.records for one in record.rounds),
        sum(one.n_accepted for record in shown.records for one in record.rounds),
    )


def _run(llm: LLM, prompt: str, n_tokens: int) -> _Run:
    received = time.monotonic()
    checked = llm.front.prompt(prompt)
    params = SamplingParams(temperature=0.0, max_tokens=n_tokens, ignore_eos=True)
    request = llm.front.request(checked, params)
    run = _Run(received, time.monotonic())
    engine = llm.engine
    if not engine.idle:
        raise PellucidError("the engine is busy, and its times would not be this prompt's")

    def see(record: StepRecord) -> None:
        run.records.append(record)
        if record.pages.owned:  # an answer that ends has given its pages back
            span = record.spans[-1]
            run.held.append((span.start + span.n_tokens, record.pages.owned))

    drop = engine.subscribe(see)
    try:
        with Stream(engine, request) as stream:
            for increment in stream:
                run.token_ids += tuple(increment.token_ids)
            run.text = stream.output().outputs[0].text
    finally:
        drop()
    return run


def _phases(steps: Sequence[StepRecord], among: int) -> tuple[tuple[str, float], ...]:
    """The phases of all steps together, each divided by `among`; drafting where it was done."""
    sums = {
        name: sum(getattr(step.seconds, name) for step in steps) / among for name in Phases._fields
    }
    if not any(step.rounds for step in steps):
        del sums["draft"]  # the question whether to draft, which the rest holds
    return tuple((PHASE_NAMES.get(name, name), seconds) for name, seconds in sums.items())


def _prefill(run: _Run) -> Stage:
    steps = run.first_steps
    cost = sum((step.cost for step in steps), Cost())
    tokens = sum(span.n_tokens for step in steps for span in step.spans)
    return Stage(sum(step.seconds.forward for step in steps), cost, tokens, len(steps))


def _decode(run: _Run) -> Stage | None:
    steps = run.later_steps
    if not steps:
        return None
    middle = steps[len(steps) // 2]
    seconds = statistics.median(step.seconds.forward for step in steps)
    return Stage(seconds, middle.cost, 1, len(steps))
