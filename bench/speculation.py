"""Speculation beside plain decoding, in turn, with the machine's bound beside each result.

    python bench/speculation.py MODEL --method ngram [--tasks quoting] [--json FILE]
    python bench/speculation.py MODEL --method draft --draft SMALLER --tasks code

Guessing pays only where a step of several rows costs less than as many steps of one. That is
measured first: seconds of a step by its rows, and the most that drafts of each length could bring
if every guess were right. Then each task is answered with and without, greedily, one at a time.

"bound" is what the same rounds would bring if nothing but the rows of their steps cost time;
"share" is what was measured over it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from speculation_tasks import CODE, QUOTING

from pellucid import LLM, SamplingParams
from pellucid.core.plan import Plan, Span
from pellucid.core.record import StepRecord
from pellucid.hub import DEFAULT_MODEL
from pellucid.speculation.settings import METHODS

ROWS = (1, 2, 3, 4, 5, 7, 9, 13)
CONTEXT = 160  # positions before the rows that are timed
Clock = Callable[[], float]
TASKS = {"quoting": QUOTING, "code": CODE}


@dataclass
class Result:
    """Of one task. rate: tokens a second, plain and with drafts. places: guesses looked at and
    accepted, by place. ms: of a token's time, by part."""

    task: str
    n_tokens: int
    plain: float
    speculative: float
    ratio: float
    bound: float
    share: float
    drafts: int
    guessed: int
    accepted: int
    places: list[tuple[int, int]]
    draft_ms: float
    forward_ms: float
    rest_ms: float


def main() -> None:
    given = _arguments()
    if given.cpu:
        given.threads = 1
    clock = time.process_time if given.cpu else time.perf_counter
    common = {"max_model_len": given.max_model_len, "enable_prefix_caching": False}
    common["threads"] = given.threads
    settings = {"method": given.method, "model": given.draft, "tokens": given.tokens}
    settings["adaptive"] = not given.fixed
    wanted = {name: value for name, value in settings.items() if value is not None}
    llm = LLM(given.model, speculative=wanted, **common)
    seconds = step_seconds(llm, clock)
    _print_bound(given, llm, seconds)
    tasks = list(TASKS[given.tasks].items())[: given.n_tasks]
    params = SamplingParams(temperature=0, max_tokens=given.length)
    # What is compiled and what is learnt by the first request is not the task's.
    llm.chat(_asked("Count from one to ten."), SamplingParams(temperature=0, max_tokens=24))
    results = [
        compare(llm, task, text, params, given.rounds, seconds, clock) for task, text in tasks
    ]
    _print_summary(results)
    if given.json is not None:
        found = {"model": str(given.model), "settings": settings, "step_seconds": seconds}
        found["results"] = [asdict(result) for result in results]
        given.json.write_text(json.dumps(found, indent=1, default=str) + "\n")


def step_seconds(llm: LLM, clock: Clock, repeats: int = 7) -> dict[int, float]:
    """Seconds of a step of one sequence by its rows, the median of a few, in turn."""
    model = llm.engine.model
    size = 16
    pages = tuple(range(-(-(CONTEXT + max(ROWS)) // size)))
    cache = model.ops.new_cache(model.spec, len(pages), size)
    tokens = tuple((7 * i + 11) % 1000 for i in range(CONTEXT + max(ROWS)))
    model.forward(Plan((Span(0, 0, tokens[:CONTEXT], pages, 1),), size), cache)
    found: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(repeats):
        for rows in ROWS:
            span = Span(0, CONTEXT, tokens[CONTEXT : CONTEXT + rows], pages, rows)
            begin = clock()
            model.forward(Plan((span,), size), cache)
            found[rows].append(clock() - begin)
    return {rows: statistics.median(times) for rows, times in found.items()}


def compare(
    llm: LLM,
    task: str,
    text: str,
    params: SamplingParams,
    rounds: int,
    seconds: dict[int, float],
    clock: Clock,
) -> Result:
    """Without drafts, as a request can ask for, and with, in turn; the answers must be equal."""
    times: dict[str, list[float]] = {"plain": [], "speculative": []}
    records: list[StepRecord] = []
    stop = llm.engine.subscribe(records.append)
    ways = {"plain": replace(params, speculative=False), "speculative": params}
    n_tokens = 0
    for _ in range(rounds):
        answers = {}
        for name, way in ways.items():
            records.clear()
            begin = clock()
            first = 0.0
            ids: list[int] = []
            for increment in llm.stream(_asked(text), way):
                if not ids:
                    first = clock() - begin
                ids += increment.token_ids
            times[name].append(clock() - begin - first)
            answers[name] = ids
        if answers["plain"] != answers["speculative"]:
            raise SystemExit(f"{task}: the answers differ")
        n_tokens = len(answers["plain"])
    stop()
    took = {name: statistics.median(found) for name, found in times.items()}
    later = records[1:]  # the first gave the first token
    result = _result(task, n_tokens, took, later, seconds)
    print(
        f"{task:14} {result.n_tokens:5} {result.plain:8.1f} {result.speculative:8.1f} "
        f"{result.ratio:6.2f} {result.bound:6.2f} {result.share:6.2f}   "
        f"{result.accepted}/{result.guessed} in {result.drafts}   "
        f"{result.draft_ms:.2f} + {result.forward_ms:.2f} + {result.rest_ms:.2f}"
    )
    return result


def _result(
    task: str,
    n_tokens: int,
    took: dict[str, float],
    records: list[StepRecord],
    seconds: dict[int, float],
) -> Result:
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
    bound = given * seconds[1] / rows_cost if rows_cost else 1.0
    ratio = took["plain"] / took["speculative"]
    draft = sum(record.seconds.draft for record in records)
    forward = sum(record.seconds.forward for record in records)
    each = 1000 / max(given, 1)
    return Result(
        task=task,
        n_tokens=n_tokens,
        plain=(n_tokens - 1) / took["plain"],
        speculative=(n_tokens - 1) / took["speculative"],
        ratio=ratio,
        bound=bound,
        share=ratio / bound,
        drafts=len(rounds),
        guessed=sum(len(one.draft) for one in rounds),
        accepted=sum(one.n_accepted for one in rounds),
        places=places,
        draft_ms=draft * each,
        forward_ms=forward * each,
        rest_ms=(sum(record.total_seconds for record in records) - draft - forward) * each,
    )


def _at(seconds: dict[int, float], rows: int) -> float:
    """A step's seconds, on a line between the numbers of rows that were timed."""
    known = sorted(seconds)
    for low, high in itertools.pairwise(known):
        if low <= rows <= high:
            share = (rows - low) / (high - low)
            return seconds[low] * (1 - share) + seconds[high] * share
    return seconds[known[-1]] * rows / known[-1]


def _asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _print_bound(given: argparse.Namespace, llm: LLM, seconds: dict[int, float]) -> None:
    print(f"{Path(str(given.model)).name}: a step of one row takes {1000 * seconds[1]:.2f} ms")
    print("rows         " + "".join(f"{rows:8}" for rows in seconds))
    print("step, x      " + "".join(f"{t / seconds[1]:8.2f}" for t in seconds.values()))
    print("bound, x     " + "".join(f"{r * seconds[1] / t:8.2f}" for r, t in seconds.items()))
    print(
        f"\n{'task':14} {'tok':>5} {'plain/s':>8} {'spec/s':>8} {'ratio':>6} {'bound':>6} "
        f"{'share':>6}   accepted   ms a token: draft + forward + rest"
    )


def _print_summary(results: list[Result]) -> None:
    ratios = [result.ratio for result in results]
    total = sum(r.n_tokens / r.plain for r in results) / sum(
        r.n_tokens / r.speculative for r in results
    )
    print(
        f"\nall: {total:.2f}; each: median {statistics.median(ratios):.2f}, least {min(ratios):.2f}"
    )
    places: list[list[int]] = []
    for result in results:
        for place, (looked, right) in enumerate(result.places):
            if place == len(places):
                places.append([0, 0])
            places[place][0] += looked
            places[place][1] += right
    shown = "  ".join(f"{right}/{looked}" for looked, right in places)
    print(f"accepted by place, of those looked at: {shown or 'nothing was guessed'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--method", choices=METHODS, default="ngram")
    parser.add_argument("--draft", help="a smaller model, for --method draft")
    parser.add_argument("--tokens", type=int, help="the most that is guessed at once")
    parser.add_argument("--fixed", action="store_true", help="always guess that many")
    parser.add_argument("--tasks", choices=sorted(TASKS), default="quoting")
    parser.add_argument("--n-tasks", type=int, default=100)
    parser.add_argument("--length", type=int, default=160, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--cpu", action="store_true", help="one thread, by processor time: for a busy machine"
    )
    parser.add_argument("--max-model-len", type=int, default=1024)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
