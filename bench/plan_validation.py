"""What a plan predicts, against what a server really does on this machine.

    python bench/plan_validation.py [MODEL] [--seconds 16] [--json bench/results/plan/NAME.json]

One server, in one call: it is measured as `pellucid plan --calibrate` does, then asked by open-loop
Poisson traffic at three loads: light, near what it can do, and over it. The plan is made of the
calibration and of the same requests; what it says of throughput, TTFT and ITL stands beside what
the clients saw. The client shares the machine with the server, in both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pellucid.capacity.calibrate import server_flags, sweep
from pellucid.capacity.client import Heard, Prompts, ask, body_of, get_json
from pellucid.capacity.fit import Calibration, fit
from pellucid.capacity.serving import served
from pellucid.capacity.subject import open_subject
from pellucid.costs import NATIVE_LANES
from pellucid.engine.machine import processor_name
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.scheduling import Limits
from pellucid.simulate.answers import Question
from pellucid.simulate.answers import served as served_rate
from pellucid.simulate.lengths import Lognormal, Uniform
from pellucid.simulate.run import WARM_UP
from pellucid.simulate.setup import Setup
from pellucid.simulate.summary import Delays, Point, Summary
from pellucid.simulate.sweep import Case, Sweep
from pellucid.simulate.times import Scatter
from pellucid.simulate.traffic import Job, Made

LOADS = {"light": 0.35, "near saturation": 0.85, "over saturation": 1.3}
PLACES, SEED, SEEDS = 16, 7, 5
PROMPT, OUTPUT = Lognormal(100, 0.8), Uniform(16, 48)
# What the prediction may be off, of what was measured.
ALLOWED = {"throughput": 0.10, "p50": 0.15, "p95": 0.25}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--seconds", type=float, default=16.0, help="of each load")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = measure(given.model, given.threads, given.seconds)
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(name: str, threads: int, seconds: float) -> dict[str, Any]:
    path = resolve(name, progress=TerminalProgress())
    subject = open_subject(path, name, "f16", NATIVE_LANES)
    began, load_before = time.time(), os.getloadavg()[0]
    flags = server_flags(threads, "f16", None, PLACES)
    with served(path, flags) as port:
        others = Others()
        observed = asyncio.run(sweep(port, subject.spec, lambda *_: None))
        calibration = fit(subject.spec, observed)
        busy = {"calibration": others.cores()}
        told(f"calibrated after {time.time() - began:.0f} s: {calibration.error}, {busy}")
        limits = Limits(**asyncio.run(get_json(port, "/live/about"))["limits"])
        setup = Setup(
            limits,
            calibration.times(subject.spec),
            path=calibration.path,
            scatter=Scatter(calibration.scatter),
        )
        traffic = Made(1.0, PROMPT, OUTPUT)
        question = Question(setup, traffic, 8 * PLACES, (SEED,))
        with Sweep(1) as alone:
            most = served_rate(alone.points([replace(question.crowd, requests=6 * PLACES)])[0])
        told(f"saturates at {most:.2f} requests a second, it is predicted")
        cases, measured = {}, {}
        others.cores()
        for load, share in LOADS.items():
            rate = share * most
            count = max(20, round(rate * seconds))
            cases[load] = Case(setup, traffic.at_rate(rate), count, tuple(range(SEEDS)))
            jobs = traffic.at_rate(rate).jobs(count, SEED)
            measured[load] = asyncio.run(asked(port, subject.spec.vocab_size, jobs))
            busy[load] = others.cores()
            told(f"others took {busy[load]:.2f} cores")
            told(f"{load}: {rate:.2f} requests a second, done after {time.time() - began:.0f} s")
    loads = [compared(load, predicted(cases[load]), measured[load]) for load in LOADS]
    return {
        "machine": {
            "processor": processor_name(),
            "threads": threads,
            "cores": os.cpu_count(),
            "date": time.strftime("%Y-%m-%d"),
            "load_average_before": load_before,
            "cores_that_others_took": busy,
        },
        "model": Path(name).name,
        "model_title": f"{subject.spec.name or Path(name).stem}, weights {subject.bits}",
        "places": PLACES,
        "prompt_tokens": PROMPT.words,
        "output_tokens": OUTPUT.words,
        "saturation": most,
        "calibration": _told(calibration),
        "loads": loads,
    }


class Others:
    """Cores' worth of processor time that is not ours, since it was made or last asked: a machine
    that others use gives other times from one minute to the next."""

    def __init__(self) -> None:
        self._before = self._now()

    def cores(self) -> float:
        before, self._before = self._before, self._now()
        passed, busy, own = (b - a for a, b in zip(before, self._before, strict=True))
        return max(0.0, (busy - own) / passed)

    def _now(self) -> tuple[float, float, float]:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        ticks = os.sysconf("SC_CLK_TCK")
        idle = fields[3] + fields[4]
        return time.monotonic(), (sum(fields) - idle) / ticks, self._own()

    def _own(self) -> float:
        """Of this process and all below it, those that have ended included."""
        found, ticks = 0, os.sysconf("SC_CLK_TCK")
        waiting = [os.getpid()]
        while waiting:
            pid = waiting.pop()
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                for task in Path(f"/proc/{pid}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())
            except OSError:
                continue
            found += sum(int(x) for x in stat[11:15])
        return found / ticks


def told(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _told(calibration: Calibration) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(calibration), default=float))  # type: ignore[no-any-return]


async def asked(port: int, vocab: int, jobs: list[Job]) -> dict[str, Any]:
    """The requests at their times, however many are under way; what the clients saw."""
    prompts = Prompts(vocab, SEED + len(jobs))
    bodies = [body_of(prompts.of(job.prompt), job.output) for job in jobs]
    start = time.monotonic() + 0.2

    async def one(job: Job, body: bytes) -> Heard:
        await asyncio.sleep(start + job.at - time.monotonic())
        return await ask(port, body)

    heard = await asyncio.gather(*(one(job, body) for job, body in zip(jobs, bodies, strict=True)))
    first = int(len(jobs) * WARM_UP)
    began, ends = start + jobs[first].at, start + jobs[-1].at
    looked = heard[first:]
    gaps = [b - a for each in looked for a, b in zip(each.times, each.times[1:], strict=False)]
    events = sum(began <= at <= ends for each in heard for at in each.times)
    # An event may hold several tokens, where the reader was slow.
    each_event = sum(each.tokens for each in heard) / sum(len(each.times) for each in heard)
    late = [each.asked - start - job.at for each, job in zip(heard, jobs, strict=True)]
    return {
        "requests": len(jobs),
        "requests_per_second": (len(jobs) - first - 1) / (ends - began),
        "throughput": events * each_event / (ends - began),
        "tokens_per_event": each_event,
        "client_late_s": statistics.median(late),
        "ttft": asdict(Delays.of(each.ttft for each in looked)),
        "itl": asdict(Delays.of(gaps)),
        "jobs": [list(job) for job in jobs],
    }


def predicted(case: Case) -> Point:
    """The same requests; what is drawn besides, by several seeds."""
    with Sweep(len(os.sched_getaffinity(0))) as processes:
        replayed = [replace(case, traffic=Replayed(case, SEED), seeds=(s,)) for s in case.seeds]
        return Point(tuple(run for point in processes.points(replayed) for run in point.runs))


class Replayed:
    """The jobs of one seed, whatever seed is asked for."""

    def __init__(self, case: Case, seed: int) -> None:
        self._traffic, self._seed = case.traffic, seed
        self.rate = case.traffic.rate
        self.mean_prompt, self.mean_output = case.traffic.mean_prompt, case.traffic.mean_output

    def jobs(self, count: int, seed: int) -> list[Job]:
        return self._traffic.jobs(count, self._seed)

    def at_rate(self, rate: float) -> Replayed:
        raise NotImplementedError


def compared(load: str, point: Point, measured: dict[str, Any]) -> dict[str, Any]:
    def delay(name: str, share: str) -> dict[str, Any]:
        band = point.band(lambda run: _delay(run, name, share))
        assert band is not None
        return _beside(f"{name} {share}", band.mean, measured[name][share], ALLOWED[share])

    rate = point.mean(lambda run: run.output_tokens)
    rows = [_beside("tokens/s", rate, measured["throughput"], ALLOWED["throughput"])]
    rows += [delay(name, share) for name in ("ttft", "itl") for share in ("p50", "p95")]
    return {
        "load": load,
        "requests": measured["requests"],
        "requests_per_second": measured["requests_per_second"],
        "tokens_per_event": measured["tokens_per_event"],
        "client_late_s": measured["client_late_s"],
        "busy": point.mean(lambda run: run.utilization),
        "rows": rows,
    }


def _delay(run: Summary, name: str, share: str) -> float | None:
    found: float | None = getattr(getattr(run, name), share)
    return found


def _beside(what: str, predicted: float, measured: float, allowed: float) -> dict[str, Any]:
    off = predicted / measured - 1 if measured else math.nan
    return {
        "what": what,
        "predicted": predicted,
        "measured": measured,
        "off": off,
        "allowed": allowed,
        "within": abs(off) <= allowed,
    }


if __name__ == "__main__":
    main()
