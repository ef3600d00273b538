"""A small answer for a picture: latency against load, in a few seconds of one core."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

from pellucid.simulate.answers import Question
from pellucid.simulate.enough import is_stable, served
from pellucid.simulate.goals import delay
from pellucid.simulate.setup import Setup
from pellucid.simulate.summary import Point
from pellucid.simulate.sweep import Sweep
from pellucid.simulate.traffic import Traffic

_LOADS: Final = (0.1, 0.4, 0.65, 0.8, 0.9, 1.0, 1.15)
_SEEDS: Final = (0, 1, 2, 3)
_REQUESTS: Final = 80
_CROWD: Final = 4  # requests for each place, in the run that saturates


def figure(setup: Setup, traffic: Traffic, replicas: int) -> dict[str, Any]:
    """Where `replicas` of the setup saturate, and quantiles at shares of that, with bands over
    seeds. Seconds and requests a second."""
    requests = max(_REQUESTS, 10 * replicas)
    question = Question(setup, traffic, requests, _SEEDS)
    with Sweep(1) as sweep:
        crowd = question.crowd
        smaller = max(_REQUESTS, _CROWD * setup.limits.max_num_seqs)
        crowd = replace(crowd, requests=max(smaller, crowd.users or 0), seeds=_SEEDS[:1])
        full = sweep.points([crowd])[0]
        most = served(full) * replicas
        rates = [share * most for share in _LOADS]
        cases = [replace(question.case(rate, replicas), requests=requests) for rate in rates]
        points = sweep.points(cases)
    return {
        "saturation": {
            "requests_per_second": most,
            "tokens_per_second": full.mean(lambda run: run.output_tokens) * replicas,
            "parts": full.shares(lambda run: run.parts),
            "waiting_for": full.shares(lambda run: run.waiting),
        },
        "curve": [_load(rate, point) for rate, point in zip(rates, points, strict=True)],
    }


def _load(rate: float, point: Point) -> dict[str, Any]:
    def quantiles(name: str) -> dict[str, Any]:
        bands = {share: point.band(delay(name, share)) for share in ("p50", "p95")}
        return {share: None if band is None else asdict(band) for share, band in bands.items()}

    return {
        "requests_per_second": rate,
        "keeps_up": is_stable(point),
        "tokens_per_second": point.mean(lambda run: run.output_tokens),
        "prompt_share": point.mean(lambda run: run.prompt_share),
        "busy": point.mean(lambda run: run.utilization),
        "ttft": quantiles("ttft"),
        "itl": quantiles("itl"),
    }
