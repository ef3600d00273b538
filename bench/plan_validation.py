"""What a plan predicts, against what a server really does on this machine.

    python bench/plan_validation.py [MODEL] [--seconds 8] [--json bench/results/plan/NAME.json]

One server, in one call: it is measured as `pellucid plan --calibrate` does, then asked by open-loop
Poisson traffic at three loads: light, near what it can do, and over it. The plan is made of the
calibration and of the same requests; what it says of throughput, TTFT and ITL stands beside what
the clients saw. The client shares the machine with the server, in both.

A machine's pace wanders by a tenth and more from one half minute to the next, so that a calibration
is of another machine than a load that comes a minute later. So calibration and loads take turns:
calibration, the loads, calibration, the loads the other way round, calibration. The fit is to all
three parts, and none of the loads' steps. A part or a turn in which other programs took more than a
tenth of a core is measured again, while there is time, and the least disturbed one counts, whatever
it says.

Beside the prediction stands the same simulation with the pace as it was (`known_pace`): whatever is
off there is the simulator's own error, and the rest is the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import statistics
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from plan_machine import Others

from pellucid.capacity.calibrate import server_flags
from pellucid.capacity.client import Heard, Prompts, ask, body_of, get_json
from pellucid.capacity.fit import Calibration, fit
from pellucid.capacity.observe import Observed, Phase, observe, phases, steps_of, traffic
from pellucid.capacity.serving import served
from pellucid.capacity.subject import open_subject
from pellucid.core.spec import ModelSpec
from pellucid.costs import NATIVE_LANES
from pellucid.engine.machine import processor_name
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.scheduling import Limits
from pellucid.simulate.answers import Question
from pellucid.simulate.draws import Draws
from pellucid.simulate.enough import served as served_rate
from pellucid.simulate.lengths import Lognormal, Uniform
from pellucid.simulate.pace import Pace
from pellucid.simulate.run import WARM_UP, Run, run
from pellucid.simulate.setup import Setup
from pellucid.simulate.summary import Delays
from pellucid.simulate.sweep import Sweep
from pellucid.simulate.times import Fitted
from pellucid.simulate.traffic import Job, Made

T = TypeVar("T")

LOADS = {"light": 0.35, "near saturation": 0.85, "over saturation": 1.3}
SHARES = {"light": 0.9, "near saturation": 1.5, "over saturation": 1.0}  # of --seconds
PLACES, SEEDS = 16, 8
TRAFFIC_SEEDS = (7, 8)  # of the loads' first turn and of their second
PROMPT, OUTPUT = Lognormal(100, 0.8), Uniform(16, 48)
TRAFFIC = Made(1.0, PROMPT, OUTPUT)
# What the prediction may be off, of what was measured.
ALLOWED = {"throughput": 0.10, "p50": 0.15, "p95": 0.25}
QUIET = 0.1  # cores that others may take of a part that is not measured again
LOOK_EACH_S = 3.0  # at the records, which keep the last 512 steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a load's turn, about")
    parser.add_argument("--within", type=float, default=20.0, help="seconds: what is disturbed is "
                        "not measured again after these")  # fmt: skip
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = measure(given.model, given.threads, given.seconds, given.within)
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=1) + "\n")


@dataclass
class Turn:
    """A load's requests, what their clients saw, and the steps that served them, as the records
    tell of them; `start` is when the first could come."""

    jobs: list[Job]
    heard: list[Heard] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    start: float = 0.0

    @property
    def first(self) -> int:
        return int(len(self.jobs) * WARM_UP)

    @property
    def window(self) -> tuple[float, float]:
        return self.jobs[self.first].at, self.jobs[-1].at

    @property
    def whole(self) -> bool:
        """Whether the records tell of every step."""
        ids = [step["id"] for step in self.records]
        return bool(ids) and ids[-1] - ids[0] + 1 == len(ids)


class Measuring:
    """A server that runs: calibration and loads in turn."""

    def __init__(self, port: int, spec: ModelSpec, seconds: float, within: float) -> None:
        self.port, self.spec, self.seconds = port, spec, seconds
        self.limits = Limits(**asyncio.run(get_json(port, "/live/about"))["limits"])
        self.parts: list[Observed] = []
        self.turns: dict[str, list[Turn]] = {load: [] for load in LOADS}
        self.rates: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        self.tries: dict[str, int] = {}
        self._ends = time.monotonic() + within
        self._seeds = itertools.count(1)  # prompts that were asked before would be cached

    def all(self) -> None:
        sizes = self.limits.max_num_seqs, self.limits.max_model_len
        rounds = [[p for p in phases(*sizes) if not p.mixed] + traffic(*sizes, 1)]
        rounds += [traffic(*sizes, number) for number in (2, 3)]
        self._calibrate(rounds[0])
        most = saturation(self.limits, fit(self.spec, self.observed), self.spec)
        self.rates = {load: share * most for load, share in LOADS.items()}
        told(f"saturates at {most:.2f} requests a second, it is predicted")
        for seed, order in zip(TRAFFIC_SEEDS, (list(LOADS), list(LOADS)[::-1]), strict=True):
            for load in order:
                self._load(load, seed)
            self._calibrate(rounds[len(self.parts)])

    @property
    def observed(self) -> Observed:
        """All parts of the calibration together."""
        found = Observed(mixed=frozenset().union(*(part.mixed for part in self.parts)))
        for part in self.parts:
            found.steps += part.steps
            found.before += part.before
            found.after += part.after
        return found

    def _calibrate(self, plan: list[Phase]) -> None:
        def once() -> Observed:
            vocab, seed = self.spec.vocab_size, next(self._seeds)
            return asyncio.run(observe(self.port, vocab, plan, lambda *_: None, seed=seed))

        self.parts.append(self._least_disturbed(f"calibration {len(self.parts) + 1}", once))

    def _load(self, load: str, seed: int) -> None:
        count = max(20, round(self.rates[load] * self.seconds * SHARES[load]))
        jobs = TRAFFIC.at_rate(self.rates[load]).jobs(count, seed)

        def once() -> Turn:
            turn = Turn(jobs)
            asyncio.run(asked(self.port, self.spec.vocab_size, turn, next(self._seeds)))
            return turn

        name = f"{load} {len(self.turns[load]) + 1}"
        self.turns[load].append(self._least_disturbed(name, once))

    def _least_disturbed(self, what: str, once: Callable[[], T]) -> T:
        tried: list[tuple[float, T]] = []
        while not tried or (tried[-1][0] > QUIET and time.monotonic() < self._ends):
            others = Others()
            found = once()
            tried.append((others.cores(), found))
            told(f"{what}: done; others took {tried[-1][0]:.2f} cores")
        self.busy[what], best = min(tried, key=lambda one: one[0])
        self.tries[what] = len(tried)
        return best


def measure(name: str, threads: int, seconds: float, within: float) -> dict[str, Any]:
    path = resolve(name, progress=TerminalProgress())
    subject = open_subject(path, name, "f16", NATIVE_LANES)
    spec, load_before = subject.spec, os.getloadavg()[0]
    with served(path, server_flags(threads, "f16", None, PLACES)) as port:
        measuring = Measuring(port, spec, seconds, within)
        measuring.all()
    calibration = fit(spec, measuring.observed)
    setup = Setup(
        measuring.limits,
        calibration.times(spec),
        path=calibration.path,
        pace=calibration.pace,
    )
    return {
        "machine": {
            "processor": processor_name(),
            "threads": threads,
            "cores": os.cpu_count(),
            "date": time.strftime("%Y-%m-%d"),
            "load_average_before": load_before,
            "cores_that_others_took": measuring.busy,
            "tries": measuring.tries,
        },
        "model": Path(name).name,
        "model_title": f"{spec.name or Path(name).stem}, weights {subject.bits}",
        "places": PLACES,
        "prompt_tokens": PROMPT.words,
        "output_tokens": OUTPUT.words,
        "calibration": _told(calibration),
        "pace": _paces(measuring, calibration.times(spec)),
        "loads": [
            compared(load, setup, measuring.rates[load], measuring.turns[load]) for load in LOADS
        ],
    }


def told(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _told(calibration: Calibration) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(asdict(calibration), default=float))
    del found["pace"]  # thousands of numbers
    return found


def _paces(measuring: Measuring, times: Fitted) -> dict[str, float]:
    """How long the steps of each part took, over what the whole calibration says of them: what a
    machine wanders by itself."""
    steps = {
        f"calibration {i + 1}": [step for step in part.steps if step.phase in part.mixed]
        for i, part in enumerate(measuring.parts)
    }
    for load, turns in measuring.turns.items():
        for i, turn in enumerate(turns):
            steps[f"{load} {i + 1}"] = steps_of(turn.records, load)
    return {
        name: sum(s.seconds for s in some) / sum(times.seconds(s.spans) for s in some)
        for name, some in steps.items()
    }


def saturation(limits: Limits, calibration: Calibration, spec: ModelSpec) -> float:
    setup = Setup(limits, calibration.times(spec), path=calibration.path, pace=calibration.pace)
    question = Question(setup, TRAFFIC, 8 * PLACES, (0, 1, 2))
    with Sweep(1) as alone:
        return served_rate(alone.points([replace(question.crowd, requests=6 * PLACES)])[0])


async def asked(port: int, vocab: int, turn: Turn, seed: int) -> None:
    """The requests at their times, however many are under way."""
    prompts = Prompts(vocab, 1000 + seed)
    bodies = [body_of(prompts.of(job.prompt), job.output) for job in turn.jobs]
    before = (await get_json(port, "/live/records"))["steps"][-1]["id"]
    turn.start = start = time.monotonic() + 0.2
    steps: dict[int, dict[str, Any]] = {}

    async def one(job: Job, body: bytes) -> Heard:
        await asyncio.sleep(start + job.at - time.monotonic())
        return await ask(port, body)

    async def look() -> None:
        records = await get_json(port, "/live/records")
        steps.update({step["id"]: step for step in records["steps"] if step["id"] > before})

    async def look_on() -> None:
        while True:
            await asyncio.sleep(LOOK_EACH_S)
            await look()

    looking = asyncio.create_task(look_on())
    each = zip(turn.jobs, bodies, strict=True)
    turn.heard = list(await asyncio.gather(*(one(job, body) for job, body in each)))
    looking.cancel()
    await asyncio.sleep(0.2)
    await look()
    turn.records = [steps[number] for number in sorted(steps)]


@dataclass(frozen=True)
class Seen:
    """What a load comes to: tokens of answers a second, and delays."""

    rate: float
    ttft: Delays
    itl: Delays

    def of(self, what: str, share: str) -> float:
        found = getattr(getattr(self, what), share)
        assert found is not None
        return float(found)


def measured(turns: list[Turn]) -> Seen:
    """Of both turns together, as their clients saw it."""
    tokens, seconds = 0.0, 0.0
    ttft: list[float] = []
    gaps: list[float] = []
    for turn in turns:
        began, ends = (turn.start + at for at in turn.window)
        # An event may hold several tokens, where the reader was slow.
        each = sum(one.tokens for one in turn.heard) / sum(len(one.times) for one in turn.heard)
        tokens += each * sum(began <= at <= ends for one in turn.heard for at in one.times)
        seconds += ends - began
        for one in turn.heard[turn.first :]:
            ttft.append(one.ttft)
            gaps += [b - a for a, b in zip(one.times, one.times[1:], strict=False)]
    return Seen(tokens / seconds, Delays.of(ttft), Delays.of(gaps))


def simulated(setup: Setup, turns: list[Turn], seed: int, paces: list[Pace | Known]) -> Seen:
    """The same requests."""
    tokens, seconds = 0, 0.0
    ttft: list[float] = []
    gaps: list[float] = []
    for turn, pace in zip(turns, paces, strict=True):
        one: Run = run(replace(setup, pace=pace), Replayed(turn.jobs), len(turn.jobs), seed)
        tokens += one.tally.tokens
        seconds += one.seconds
        gaps += one.tally.gaps
        for i in range(one.first, len(one.jobs)):
            ttft.append(one.tally.first_token[i] - one.jobs[i].at + setup.path.after)
    return Seen(tokens / seconds, Delays.of(ttft), Delays.of(gaps))


class Replayed:
    """Requests that are known, whatever seed is asked for."""

    rate = mean_prompt = mean_output = 1.0

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = jobs

    def jobs(self, count: int, seed: int) -> list[Job]:
        return self._jobs[:count]

    def at_rate(self, rate: float) -> Replayed:
        raise NotImplementedError


class Known:
    """The pace as it was in a turn, at the moment at which it was: from the steps that served it,
    by their real times. Where none ran the machine does what the model says."""

    def __init__(self, turn: Turn, times: Fitted) -> None:
        self._at, self._done = [0.0], [0.0]
        for record, step in zip(turn.records[1:], steps_of(turn.records, ""), strict=True):
            ms = record["ms"]
            end = record["start"] - turn.start + (ms["wall"] - ms["wait"]) / 1000
            began = max(end - step.seconds, self._at[-1])
            self._add(began, began - self._at[-1])
            self._add(end, times.seconds(step.spans))

    def _add(self, at: float, work: float) -> None:
        if at > self._at[-1]:
            self._at.append(at)
            self._done.append(self._done[-1] + work)

    def played(self, draws: Draws) -> Known:
        return self

    def seconds(self, now: float, work: float) -> float:
        done = _between(self._at, self._done, now) + work
        return _between(self._done, self._at, done) - now


def _between(known: list[float], wanted: list[float], x: float) -> float:
    """Beyond the end one goes with the other."""
    if x >= known[-1]:
        return wanted[-1] + x - known[-1]
    i = bisect_right(known, x)
    share = (x - known[i - 1]) / (known[i] - known[i - 1])
    return wanted[i - 1] + share * (wanted[i] - wanted[i - 1])


def compared(load: str, setup: Setup, rate: float, turns: list[Turn]) -> dict[str, Any]:
    real = measured(turns)
    by_chance = [simulated(setup, turns, s, [setup.pace] * len(turns)) for s in range(SEEDS)]
    known = None
    if all(turn.whole for turn in turns):
        times = setup.times
        assert isinstance(times, Fitted)
        known = simulated(setup, turns, 0, [Known(turn, times) for turn in turns])
    rows = [_row("tokens/s", ALLOWED["throughput"], real, by_chance, known, None)]
    rows += [
        _row(f"{what} {share}", ALLOWED[share], real, by_chance, known, (what, share))
        for what in ("ttft", "itl")
        for share in ("p50", "p95")
    ]
    heard = [one for turn in turns for one in turn.heard]
    late = [
        one.asked - turn.start - job.at
        for turn in turns
        for one, job in zip(turn.heard, turn.jobs, strict=True)
    ]
    return {
        "load": load,
        "requests": [len(turn.jobs) for turn in turns],
        "requests_per_second": rate,
        "tokens_per_event": sum(x.tokens for x in heard) / sum(len(x.times) for x in heard),
        "client_late_s": statistics.median(late),
        "rows": rows,
    }


def _row(
    name: str,
    allowed: float,
    real: Seen,
    by_chance: list[Seen],
    known: Seen | None,
    which: tuple[str, str] | None,
) -> dict[str, Any]:
    def value(seen: Seen) -> float:
        return seen.rate if which is None else seen.of(*which)

    values = [value(one) for one in by_chance]
    predicted, was = statistics.fmean(values), value(real)
    off = predicted / was - 1 if was else math.nan
    return {
        "what": name,
        "predicted": predicted,
        "scatter": statistics.stdev(values),
        "measured": was,
        "off": off,
        "allowed": allowed,
        "within": abs(off) <= allowed,
        "known_pace": None if known is None else value(known),
        "known_pace_off": None if known is None else value(known) / was - 1,
    }


if __name__ == "__main__":
    main()
