"""Speculation beside plain decoding, in turn, and the bound that the machine sets to it.

Guessing pays only where a step of several rows costs less than as many steps of one. So that is
measured first (`step_seconds`); then each task is answered with and without drafts, greedily, one
at a time, and the answers must be equal.
"""

from __future__ import annotations

import itertools
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
    """Of one task. plain, speculative: tokens a second after the first. bound: what the same drafts
    would bring if nothing but the rows of their steps took time; share: of it. places: guesses
    looked at and right, by place. ms: of a token's time, by part."""

    task: str
    n_tokens: int
    plain: float
    speculative: float
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
        return self.speculative / self.plain

    @property
    def share(self) -> float:
        return self.ratio / self.bound

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio, "share": self.share}


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
    clock: Clock = time.perf_counter,
) -> TaskResult:
    """Without drafts, as a request can ask for, and with, in turn. Raises `PellucidError` if the
    answers differ."""
    params = SamplingParams(temperature=0, max_tokens=length)
    ways = {"plain": replace(params, speculative=False), "speculative": params}
    times: dict[str, list[float]] = {name: [] for name in ways}
    answers: dict[str, list[int]] = {}
    records: list[StepRecord] = []
    stop = llm.engine.subscribe(records.append)
    try:
        for _ in range(rounds):
            for name, way in ways.items():
                records.clear()
                answers[name], took = _answer(llm, text, way, clock)
                times[name].append(took)
    finally:
        stop()
    if answers["plain"] != answers["speculative"]:
        raise PellucidError(f"{task}: the answers with drafts and without differ")
    took_each = {name: statistics.median(found) for name, found in times.items()}
    # The first step gave the first token.
    return _result(task, len(answers["plain"]), took_each, records[1:], seconds)


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
    took: Mapping[str, float],
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
        plain=(n_tokens - 1) / took["plain"],
        speculative=(n_tokens - 1) / took["speculative"],
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


def overall(results: Sequence[TaskResult]) -> float:
    """How many times as fast all tasks together are."""
    plain = sum(result.n_tokens / result.plain for result in results)
    return plain / sum(result.n_tokens / result.speculative for result in results)
