"""A plan made: from what is asked to the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pellucid.capacity.machine import Machine, find_machine, lanes_of
from pellucid.capacity.memory import Fit, fit_memory
from pellucid.capacity.report import Load, Report
from pellucid.capacity.subject import Subject, open_subject
from pellucid.capacity.variants import what_ifs
from pellucid.capacity.wishes import Wishes
from pellucid.core.errors import BadInput
from pellucid.simulate.answers import (
    LOADS,
    Question,
    TokenCost,
    check_goals,
    replicas_needed,
    token_cost,
)
from pellucid.simulate.enough import is_enough, is_stable, served
from pellucid.simulate.setup import Setup
from pellucid.simulate.summary import Point
from pellucid.simulate.sweep import Sweep

_USUAL_LOAD = 0.7  # of saturation: what is looked at where nobody says a rate
_HALVINGS = 5  # of the load in search of the most within the goals


def make_plan(path: Path, name: str, wishes: Wishes, sweep: Sweep) -> Report:
    """Raises `BadInput` for what does not fit or cannot be, and what opening the model raises."""
    subject = open_subject(path, name, wishes.kv_dtype, lanes_of(wishes.hardware))
    if wishes.quantization is not None:
        subject = subject.quantized(wishes.quantization)
    machine = find_machine(
        wishes.hardware, subject, wishes.threads, wishes.per_hour, wishes.efficiency
    )
    fit = fit_memory(subject, machine, wishes.asked)
    question = make_question(subject, machine, fit, wishes)
    _check_lengths(question, fit)
    crowd, alone = sweep.points([question.crowd, question.alone])
    saturation = served(crowd)
    check_goals(wishes.goals, alone)
    report = Report(
        wishes, subject, machine, fit, question, saturation, crowd, alone, 1, (),
        Load(0.0, alone, True, None), True, _cost(machine, crowd, 1), warnings=fit.warnings,
    )  # fmt: skip
    return _answered(report, sweep)


def make_question(subject: Subject, machine: Machine, fit: Fit, wishes: Wishes) -> Question:
    """What is simulated: one replica, its traffic, goals and seeds."""
    setup = Setup(
        fit.limits,
        machine.times(subject),
        1,
        wishes.routing,
        wishes.guessing,
        machine.path,
        machine.pace,
    )
    seeds = tuple(range(wishes.seed, wishes.seed + wishes.seeds))
    return Question(setup, wishes.traffic, wishes.requests, seeds, wishes.goals)


def _check_lengths(question: Question, fit: Fit) -> None:
    mean = question.traffic.mean_prompt + question.traffic.mean_output
    most = fit.limits.max_model_len
    if mean > most:
        raise BadInput(
            f"a request has {mean:.0f} tokens on average and the context holds {most}: this "
            "context does not fit the traffic: raise --max-model-len, or ask for shorter ones"
        )


def _answered(report: Report, sweep: Sweep) -> Report:
    wishes, question, saturation = report.wishes, report.question, report.saturation
    replicas, tried = wishes.replicas or 1, {}
    rate = wishes.rate
    if wishes.replicas is None and rate is not None and (wishes.goals or rate > saturation):
        needed = replicas_needed(sweep, question, rate, saturation)
        replicas, tried = needed.replicas, needed.tried
    if rate is None:
        rate = _USUAL_LOAD * saturation * replicas
    rates = wishes.rates or tuple(load * saturation * replicas for load in LOADS)
    cases = [question.sample(each, replicas) for each in rates]
    asked = [] if replicas in tried else [question.case(rate, replicas)]
    *points, point = [*sweep.points([*cases, *asked]), *(tried[n] for n in tried if n == replicas)]
    chosen = _load(report.machine, rate, point, replicas)
    loads = [
        _load(report.machine, each, point, replicas)
        for each, point in zip(rates, points, strict=True)
    ]
    curve = sorted(loads, key=lambda load: load.rate)
    met = is_enough(chosen.point, wishes.goals)
    within = _within_goals(report, sweep) if wishes.goals else None
    done = replace(
        report,
        replicas=replicas,
        curve=tuple(curve),
        chosen=chosen,
        met=met,
        within_goals=within,
        tried=tuple((n, is_enough(p, wishes.goals)) for n, p in sorted(tried.items())),
        warnings=(*report.warnings, *_warnings(chosen.point, report)),
    )
    if wishes.what_ifs:
        done = replace(done, what_ifs=tuple(what_ifs(done, sweep)))
    return done


def _within_goals(report: Report, sweep: Sweep) -> float | None:
    """The most requests a second of one replica that meet the goals, by halving; None if even a
    hundredth of its saturation is too much."""
    question, goals = report.question, report.wishes.goals
    low, high = 0.0, 1.1
    for _ in range(_HALVINGS):
        # Several at once: processes are there.
        steps = [low + (high - low) * k / 3 for k in (1, 2)]
        points = sweep.points([question.case(step * report.saturation) for step in steps])
        good = [is_enough(point, goals) for point in points]
        if not good[0]:
            high = steps[0]
        elif not good[1]:
            low, high = steps
        else:
            low = steps[1]
    return low * report.saturation or None


def _load(machine: Machine, rate: float, point: Point, replicas: int) -> Load:
    return Load(rate, point, is_stable(point), _cost(machine, point, replicas))


def _cost(machine: Machine, point: Point, replicas: int) -> TokenCost | None:
    return None if machine.per_hour is None else token_cost(point, machine.per_hour, replicas)


def _warnings(point: Point, report: Report) -> list[str]:
    found = []
    clipped = max(run.clipped for run in point.runs)
    if clipped:
        share = clipped / point.runs[0].requests
        found.append(
            f"{share:.1%} of the requests do not fit the context of "
            f"{report.fit.limits.max_model_len} and were cut to it; a server refuses them"
        )
    if report.machine.known == "peaks measured here":
        found.append(
            "step times are this machine's peaks at an assumed efficiency: `pellucid plan "
            "--calibrate` measures them"
        )
    if report.machine.known == "peaks by its maker":
        e = report.machine.efficiency
        found.append(
            f"step times are a roofline at {e.bandwidth:.0%} of the bandwidth and "
            f"{e.arithmetic:.0%} of the arithmetic that its maker states, and {1000 * e.fixed:g} "
            "ms a step: nothing was run on such a machine"
        )
    return found
