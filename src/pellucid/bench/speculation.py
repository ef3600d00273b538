"""Speculation beside plain decoding, in turn, and the bound that the machine sets to it.

Guessing pays only where a step of several rows costs less than as many steps of one. So that is
measured first (`step_seconds`); then each task is answered with and without drafts, greedily, one
at a time, and the answers must be equal.

A machine's own speed moves from second to second. So an answer with drafts stands between two
without, and is compared to their geometric mean, in which a steady drift cancels; the control is an
answer without drafts that stands so. What the control strays from 1 is what a ratio may stray by.
Beside the time that an answer took stands its steady time, in which a step that was held up does
not count: for each number of rows the median of its steps, times how many there were.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pellucid.bench.cases import PAGE_SIZE, tokens
from pellucid.core.errors import PellucidError
from pellucid.core.params import SamplingParams
from pellucid.core.plan import Plan, Span
from pellucid.core.record import StepRecord
from pellucid.costs import pages_for
from pellucid.engine.llm import LLM

ROWS: Final = (1, 2, 3, 4, 5, 7, 9, 13)
_CONTEXT: Final = 160  # positions before the rows that are timed

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Of one task. plain, speculative: tokens a second after the first. ratios: of each round, with
    drafts over plain; controls: plain over plain, measured alike; steady: the same two of steady
    times. bound: what the same drafts
    would bring if nothing but the rows of their steps took time; share: of it. places: guesses
    looked at and right, by place. ms: of a token's time, by part."""

    task: str
    n_tokens: int
    plain: float
    speculative: float
    ratios: list[float]
    controls: list[float]
    steady_ratios: list[float]
    steady_controls: list[float]
    bound: float
    drafts: int
    guessed: int
    accepted: int
    places: list[tuple[int, int]]
    draft_ms: float
    forward_ms: float
    rest_ms: float

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def spread(self) -> float:
        """Half of what the middle half of the rounds' ratios spans."""
        return _half_span(self.ratios)

    @property
    def control(self) -> float | None:
        return statistics.median(self.controls) if self.controls else None

    @property
    def steady(self) -> float:
        return statistics.median(self.steady_ratios)

    @property
    def steady_control(self) -> float | None:
        return statistics.median(self.steady_controls) if self.steady_controls else None

    @property
    def share(self) -> float:
        return self.ratio / self.bound

    def to_json(self) -> dict[str, Any]:
        names = "ratio", "spread", "control", "steady", "steady_control", "share"
        return asdict(self) | {name: getattr(self, name) for name in names}


def step_seconds(llm: LLM, clock: Clock = time.perf_counter, repeats: int = 7) -> dict[int, float]:
    """Seconds of a step of one sequence by its rows, the median of a few, in turn."""
    model = llm.engine.model
    vocab, end = model.spec.vocab_size, _CONTEXT + max(ROWS)
    pages = tuple(range(pages_for(end, PAGE_SIZE)))
    cache = model.ops.new_cache(model.spec, len(pages), PAGE_SIZE)
    text = tuple(tokens(0, 0, end, vocab))
    model.forward(Plan((Span(0, 0, text[:_CONTEXT], pages, 1),), PAGE_SIZE), cache)
    found: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(repeats):
        for rows in ROWS:
            span = Span(0, _CONTEXT, text[_CONTEXT : _CONTEXT + rows], pages, rows)
            begin = clock()
            model.forward(Plan((span,), PAGE_SIZE), cache)
            found[rows].append(clock() - begin)
    return {rows: statistics.median(times) for rows, times in found.items()}


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """`seconds`: of a step by its rows."""

    told: dict[str, Any]
    seconds: dict[int, float]
    results: tuple[TaskResult, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.told,
            "step_seconds": self.seconds,
            "bound": {rows: self.bound(rows) for rows in self.seconds},
            "tasks": [result.to_json() for result in self.results],
            "ratio": overall(self.results),
            "accepted_by_place": summed_places(self.results),
        }

    def bound(self, rows: int) -> float:
        """How many times as fast decoding is at most, by drafts of `rows` - 1 guesses."""
        return rows * self.seconds[1] / self.seconds[rows]


def measure_speculation(
    llm: LLM,
    told: dict[str, Any],
    tasks: Mapping[str, str],
    length: int,
    note: Callable[[str], None],
) -> SpeculationReport:
    """The bound, and every task with drafts and without: answers of `length` tokens at most. `llm`
    speculates, as `told` says. Raises as `compare`."""
    note("measuring a step by its rows")
    seconds = step_seconds(llm)
    warm(llm)
    results = []
    for task, text in tasks.items():
        note(f"measuring speculation: {task}")
        results.append(compare(llm, task, text, length, seconds))
    return SpeculationReport(told, seconds, tuple(results))


def warm(llm: LLM) -> None:
    """What is compiled and what is learnt by the first request is not a task's."""
    _answer(llm, "Count from one to ten.", SamplingParams(temperature=0, max_tokens=24), time.time)


def compare(
    llm: LLM,
    task: str,
    text: str,
    length: int,
    seconds: Mapping[int, float],
    *,
    rounds: int = 1,
    control: bool = False,
    clock: Clock = time.perf_counter,
) -> TaskResult:
    """Without drafts, as a request can ask for, and with, in turn, and a control if wanted. Raises
    `PellucidError` if the answers differ."""
    params = SamplingParams(temperature=0, max_tokens=length)
    plain = replace(params, speculative=False)
    records: list[StepRecord] = []
    drafted: list[StepRecord] = []  # of the last answer with drafts
    truth: list[int] = []
    n_middle = 2 if control else 1
    # plain, drafts, plain, control, plain, drafts, plain, control, plain ...
    found: list[float] = []
    steady: list[float] = []
    stop = llm.engine.subscribe(records.append)
    try:
        for turn in range(2 * n_middle * rounds + 1):
            drafting = turn % (2 * n_middle) == 1
            records.clear()
            answer, took = _answer(llm, text, params if drafting else plain, clock)
            if answer != (truth := truth or answer):
                raise PellucidError(f"{task}: the answers with drafts and without differ")
            found.append(took)
            steady.append(_steady_seconds(records[1:]))  # the first step gave the first token
            if drafting:
                drafted = records[1:]
    finally:
        stop()
    ratios, steady_ratios = _between(found), _between(steady)
    rates = [(len(truth) - 1) / took for took in found]
    return _result(
        task,
        len(truth),
        statistics.median(rates[::2]),
        statistics.median(rates[1 :: 2 * n_middle]),
        ratios[::n_middle],
        ratios[1::2] if control else [],
        steady_ratios[::n_middle],
        steady_ratios[1::2] if control else [],
        drafted,
        seconds,
    )


def _answer(llm: LLM, text: str, way: SamplingParams, clock: Clock) -> tuple[list[int], float]:
    """The answer's tokens, and seconds of all after the first."""
    begin = clock()
    ids: list[int] = []
    for increment in llm.stream(asked(text) if llm.has_chat_template else text, way):
        if not ids:
            begin = clock()
        ids += increment.token_ids
    return ids, clock() - begin


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _result(
    task: str,
    n_tokens: int,
    plain: float,
    speculative: float,
    ratios: list[float],
    controls: list[float],
    steady_ratios: list[float],
    steady_controls: list[float],
    records: list[StepRecord],
    seconds: Mapping[int, float],
) -> TaskResult:
    rounds = [one for record in records for one in record.rounds]
    longest = max((len(one.draft) for one in rounds), default=0)
    places = [
        (
            sum(one.n_accepted >= place and len(one.draft) > place for one in rounds),
            sum(one.n_accepted > place for one in rounds),
        )
        for place in range(longest)
    ]
    given = sum(map(len, (tokens for record in records for tokens in record.tokens.values())))
    rows_cost = sum(_at(seconds, record.spans[0].n_tokens) for record in records)
    draft = sum(record.seconds.draft for record in records)
    forward = sum(record.seconds.forward for record in records)
    each = 1000 / max(given, 1)
    return TaskResult(
        task=task,
        n_tokens=n_tokens,
        plain=plain,
        speculative=speculative,
        ratios=ratios,
        controls=controls,
        steady_ratios=steady_ratios,
        steady_controls=steady_controls,
        bound=given * seconds[1] / rows_cost if rows_cost else 1.0,
        drafts=len(rounds),
        guessed=sum(len(one.draft) for one in rounds),
        accepted=sum(one.n_accepted for one in rounds),
        places=places,
        draft_ms=draft * each,
        forward_ms=forward * each,
        rest_ms=(sum(record.total_seconds for record in records) - draft - forward) * each,
    )


def _at(seconds: Mapping[int, float], rows: int) -> float:
    """A step's seconds, on a line between the numbers of rows that were timed."""
    known = sorted(seconds)
    for low, high in itertools.pairwise(known):
        if low <= rows <= high:
            share = (rows - low) / (high - low)
            return seconds[low] * (1 - share) + seconds[high] * share
    return seconds[known[-1]] * rows / known[-1]


def summed_places(results: Sequence[TaskResult]) -> list[tuple[int, int]]:
    """Guesses looked at and right by place, of all tasks."""
    columns = itertools.zip_longest(*(result.places for result in results), fillvalue=(0, 0))
    return [(sum(a for a, _ in column), sum(b for _, b in column)) for column in columns]


def control_spread(results: Sequence[TaskResult]) -> float | None:
    """How far from 1 the tasks' steady controls stray (root mean square), so how far a steady ratio
    may by chance; None without controls."""
    controls = [x.steady_control for x in results if x.steady_control is not None]
    if not controls:
        return None
    return math.sqrt(statistics.fmean([(control - 1.0) ** 2 for control in controls]))


def _between(seconds: Sequence[float]) -> list[float]:
    """Of every second one: the geometric mean of its neighbours over it."""
    middles = range(1, len(seconds) - 1, 2)
    return [math.sqrt(seconds[i - 1] * seconds[i + 1]) / seconds[i] for i in middles]


def _steady_seconds(records: Sequence[StepRecord]) -> float:
    """Of an answer's steps, from the start of one to that of the next."""
    took: dict[int, list[float]] = {}
    for record, after in itertools.pairwise(records):
        rows = sum(span.n_tokens for span in record.spans)
        took.setdefault(rows, []).append(after.start - record.start)
    return sum(len(times) * statistics.median(times) for times in took.values())


def _half_span(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2


def overall(results: Sequence[TaskResult]) -> float:
    """How many times as fast all tasks together are."""
    plain = sum(result.n_tokens / result.plain for result in results)
    return plain / sum(result.n_tokens / result.plain / result.ratio for result in results)
