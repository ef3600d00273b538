"""A report as JSON: one object, seconds and tokens, bands as {mean, low, high}."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pellucid.capacity.report import Load, Report, WhatIf
from pellucid.capacity.words import why_it_saturates
from pellucid.simulate.answers import Question, TokenCost
from pellucid.simulate.goals import DELAYS, SHARES, delay
from pellucid.simulate.lengths import Lengths
from pellucid.simulate.summary import Point
from pellucid.simulate.traffic import Made


def report_json(report: Report) -> dict[str, Any]:
    """All of it."""
    return {
        "mark": "simulated",
        "model": _model(report),
        "machine": _machine(report),
        "fits": _fit(report),
        "traffic": traffic_json(report.question),
        "saturation": {
            "requests_per_second": report.saturation,
            "why": why_it_saturates(report),
            "parts": report.crowd.shares(lambda run: run.parts),
            "waiting_for": report.crowd.shares(lambda run: run.waiting),
            **point_json(report.crowd),
            "cost": cost_json(report.crowd_cost),
        },
        "alone": point_json(report.alone),
        "replicas": report.replicas,
        "goals": [
            {
                "name": goal.name,
                "seconds": goal.seconds,
                "reached": _band(report.chosen.point, goal.delay, goal.share),
                "met": goal.met(report.chosen.point),
            }
            for goal in report.wishes.goals
        ],
        "met": report.met,
        "within_goals_requests_per_second": report.within_goals,
        "replicas_tried": [{"replicas": n, "enough": good} for n, good in report.tried],
        "load": load_json(report.chosen),
        "curve": [load_json(load) for load in report.curve],
        "what_if": [_what_if(one) for one in report.what_ifs],
        "warnings": list(report.warnings),
    }


def load_json(load: Load) -> dict[str, Any]:
    """A point of the curve."""
    return {
        "requests_per_second": load.rate,
        "keeps_up": load.stable,
        **point_json(load.point),
        "cost": cost_json(load.cost),
    }


def point_json(point: Point) -> dict[str, Any]:
    """Rates and delays, each with its band over seeds."""
    delays = {
        name: {share: _band(point, name, share) for share in ("mean", *SHARES)}
        for name in (*DELAYS, "per_token")
    }
    return {
        "served_per_second": _asdict(point.band(lambda run: run.served)),
        "output_tokens_per_second": _asdict(point.band(lambda run: run.output_tokens)),
        "prompt_tokens_per_second": _asdict(point.band(lambda run: run.prompt_tokens)),
        **delays,
        "utilization": point.mean(lambda run: run.utilization),
        "sequences_in_a_step": point.mean(lambda run: run.batch),
        "cached_share_of_prompts": point.mean(lambda run: run.hit_rate),
        "preemptions": sum(run.preempted for run in point.runs),
        "requests": sum(run.requests for run in point.runs),
        "steps": sum(run.steps for run in point.runs),
        "seeds": len(point.runs),
    }


def cost_json(cost: TokenCost | None) -> dict[str, Any] | None:
    """US dollars for a million tokens."""
    if cost is None:
        return None
    return {
        "usd_per_million_prompt_tokens": cost.prompt,
        "usd_per_million_answer_tokens": cost.answer,
        "usd_per_million_tokens": cost.together,
    }


def traffic_json(question: Question) -> dict[str, Any]:
    """What comes, in the words of the flags."""
    traffic = question.traffic
    found: dict[str, Any] = {
        "mean_prompt_tokens": traffic.mean_prompt,
        "mean_output_tokens": traffic.mean_output,
    }
    if isinstance(traffic, Made):
        found |= {
            "prompt_tokens": _words(traffic.prompt),
            "output_tokens": _words(traffic.output),
            "burstiness": traffic.burstiness,
            "shared_prefix": traffic.shared,
            "prefixes": traffic.texts,
        }
    else:
        found |= {"log_requests_per_second": traffic.rate}
    guessing = question.setup.guessing
    return {
        **found,
        "speculation": None if guessing is None else asdict(guessing),
        "routing": question.setup.routing,
    }


def _words(lengths: Lengths) -> str:
    return lengths.words


def _model(report: Report) -> dict[str, Any]:
    subject = report.subject
    return {
        "name": subject.name,
        "family": subject.spec.family,
        "parameters": subject.priced.parameters,
        "weights": subject.bits,
        "weight_bytes": subject.weight_bytes,
        "kv_cache_dtype": subject.priced.kv_dtype,
        "kv_bytes_per_token": report.fit.per_token,
        "context": subject.spec.context_length,
    }


def _machine(report: Report) -> dict[str, Any]:
    machine = report.machine
    found = {
        "name": machine.name,
        "what": machine.what,
        "step_times": machine.known,
        "bytes_per_second": machine.limits.bandwidth,
        "operations_per_second": machine.limits.operations,
        "arithmetic": machine.limits.arithmetic,
        "usd_per_hour": machine.per_hour,
        "price_by": None if machine.per_hour is None else machine.priced_by,
        "sources": list(machine.row.sources) if machine.row is not None else [],
        "efficiency": None if machine.kept is not None else asdict(machine.efficiency),
        "calibration": None,
    }
    if machine.kept is not None:
        calibration = machine.kept.calibration
        found["calibration"] = {
            "made_at": machine.kept.made_at,
            "steps": calibration.steps,
            "error": asdict(calibration.error),
        }
    return found


def _fit(report: Report) -> dict[str, Any]:
    fit = report.fit
    return {
        "memory_bytes": fit.memory,
        "weight_bytes": fit.weights,
        "kv_budget_bytes": fit.budget,
        "kv_bytes": fit.pages,
        "limits": asdict(fit.limits),
        "warnings": list(fit.warnings),
    }


def _what_if(one: WhatIf) -> dict[str, Any]:
    return {
        "change": one.change,
        "trouble": one.trouble or None,
        "saturation_requests_per_second": one.saturation,
        "load": None if one.point is None else point_json(one.point),
        "cost_at_saturation": cost_json(one.cost),
    }


def _band(point: Point, name: str, share: str) -> dict[str, float] | None:
    return _asdict(point.band(delay(name, share)))


def _asdict(band: Any) -> dict[str, float] | None:
    return None if band is None else asdict(band)
