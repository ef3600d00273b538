"""A plan drawn in a terminal."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pellucid.capacity.machine import age_in_words
from pellucid.capacity.words import why_it_saturates
from pellucid.cli.output import in_bytes, printable
from pellucid.simulate.goals import delay
from pellucid.simulate.summary import Point, Summary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pellucid.capacity.report import Load, Report, WhatIf
    from pellucid.simulate.answers import TokenCost

_WIDEST, _NARROWEST = 118, 80
_ROOMY = 110  # columns from which bands have their place in tables


def draw(report: Report) -> str:
    """All of it, a line end at its end; with colours where standard output is a terminal."""
    from rich.console import Console

    out = io.StringIO()
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns
    width = max(_NARROWEST, min(_WIDEST, columns))
    console = Console(
        file=out, width=width, force_terminal=sys.stdout.isatty(), highlight=False, markup=False
    )
    _subject(console, report)
    _saturation(console, report)
    _curve(console, report)
    _load(console, report)
    _what_ifs(console, report)
    for warning in report.warnings:
        console.print(f"note: {printable(warning)}")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _subject(console: Console, report: Report) -> None:
    subject, machine, fit = report.subject, report.machine, report.fit
    limits = fit.limits
    console.print(f"{printable(subject.name)} on {printable(machine.what)}", style="bold")
    known = f"step times: {machine.known}"
    if machine.kept is not None:
        error = machine.kept.calibration.error
        known += (
            f", {age_in_words(machine.kept.made_at)}; steps the fit did not see are off by "
            f"{error.step:.0%} in the median, phases of them by {error.phase:.0%}"
        )
    console.print(known)
    console.print(
        f"it fits: weights {in_bytes(fit.weights)} ({subject.bits}) and keys and values up to "
        f"{in_bytes(fit.pages)} ({subject.priced.kv_dtype}, {in_bytes(fit.per_token)} a position) "
        f"of {in_bytes(fit.memory)}"
    )
    console.print(
        f"context {limits.max_model_len}, {limits.max_num_seqs} sequences at once, "
        f"{limits.max_num_batched_tokens} tokens a step, {limits.n_pages} pages of "
        f"{limits.page_size}"
    )
    if machine.per_hour is not None:
        console.print(f"price: ${machine.per_hour:g} an hour ({machine.priced_by})")
    else:
        console.print("price: not known: say it with --price")


def _saturation(console: Console, report: Report) -> None:
    _title(console, "Where it saturates, and why (simulated)")
    for line in why_it_saturates(report):
        console.print(line)
    if report.crowd_cost is not None:
        console.print(f"never idle, {_cost_words(report.crowd_cost)}")


def _curve(console: Console, report: Report) -> None:
    replicas = report.replicas
    whose = "one replica" if replicas == 1 else f"{replicas} replicas"
    bands = "; ± holds with 95 %" if console.width >= _ROOMY else ""
    _title(console, f"Latency against load, {whose} (simulated{bands})")
    table = _table(
        console,
        *("requests/s", "tokens/s", "TTFT p50", "TTFT p95", "ITL p50", "ITL p95", "e2e p95"),
        "busy",
    )
    for load in report.curve:
        table.add_row(*_cells(load, bands=console.width >= _ROOMY))
    console.print(table)


def _cells(load: Load, *, bands: bool) -> list[str]:
    point = load.point

    def told(value: Callable[[Summary], float | None], words: Callable[[float], str]) -> str:
        return _banded(point, value, words, bands=bands)

    return [
        f"{_rate(load.rate)}{'' if load.stable else ' !'}",
        told(lambda run: run.output_tokens, "{:.4g}".format),
        told(delay("ttft", "p50"), _seconds),
        told(delay("ttft", "p95"), _seconds),
        told(delay("itl", "p50"), _seconds),
        told(delay("itl", "p95"), _seconds),
        told(delay("e2e", "p95"), _seconds),
        f"{point.mean(lambda run: run.utilization):.0%}",
    ]


def _load(console: Console, report: Report) -> None:
    load, replicas = report.chosen, report.replicas
    many = "1 replica" if replicas == 1 else f"{replicas} replicas"
    _title(console, f"At {_rate(load.rate)} requests a second, {many}")
    if not load.stable:
        console.print("it does not keep up: requests come faster than they are served")
    for name, words in (("ttft", "first token"), ("itl", "between tokens"), ("e2e", "last token")):
        found = [
            f"{share} {_banded(load.point, delay(name, share), _seconds)}"
            for share in ("p50", "p90", "p95", "p99")
        ]
        console.print(f"{words:>15}: {', '.join(found)}")
    hits = load.point.mean(lambda run: run.hit_rate)
    if hits > 0.001:
        console.print(f"the prefix cache has {hits:.0%} of the prompts' tokens")
    for goal in report.wishes.goals:
        band = goal.of(load.point)
        reached = "nobody has it" if band is None else _seconds(band.mean)
        verdict = "met" if goal.met(load.point) else "MISSED"
        console.print(f"goal {goal.name} {_seconds(goal.seconds)}: {reached}: {verdict}")
    if report.tried:
        tried = ", ".join(f"{n}{'' if good else ' not'}" for n, good in report.tried)
        console.print(f"enough: {many}; tried: {tried}")
    if report.wishes.goals:
        _within(console, report)
    if load.cost is not None:
        console.print(f"at this load, {_cost_words(load.cost)}")


def _within(console: Console, report: Report) -> None:
    if report.within_goals is None:
        console.print("one replica meets the goals at no load that was tried")
    else:
        most = _rate(report.within_goals)
        console.print(f"one replica meets the goals up to about {most} requests a second")


def _what_ifs(console: Console, report: Report) -> None:
    if not report.what_ifs:
        return
    rate = _rate(report.chosen.rate)
    _title(
        console,
        f"What would change it (one seed; at {rate} requests a second; cost when never idle)",
    )
    table = _table(console, "change", "most req/s", "TTFT p95", "token p50", "ITL p95", "$/M out")
    base = report.what_ifs[0].saturation or 1.0
    for one in report.what_ifs:
        table.add_row(*_changed(one, base))
    console.print(table)
    for one in report.what_ifs:
        if one.trouble:
            console.print(f"{one.change}: {printable(one.trouble)}")


def _changed(one: WhatIf, base: float) -> list[str]:
    if one.point is None or one.saturation is None:
        return [one.change, "not simulated", "", "", "", ""]
    point = one.point
    cost = "" if one.cost is None or one.cost.answer is None else f"{one.cost.answer:.3g}"
    return [
        one.change,
        f"{_rate(one.saturation)} (x{one.saturation / base:.2f})",
        _banded(point, delay("ttft", "p95"), _seconds),
        _banded(point, delay("per_token", "p50"), _seconds),
        _banded(point, delay("itl", "p95"), _seconds),
        cost,
    ]


def _cost_words(cost: TokenCost) -> str:
    prompt = "" if cost.prompt is None else f"${cost.prompt:.3g} for prompts, "
    answer = "" if cost.answer is None else f"${cost.answer:.3g} for answers, "
    return (
        f"a million tokens cost {prompt}{answer}${cost.together:.3g} of both together (an hour's "
        "price divided as the steps' time is)"
    )


def _banded(
    point: Point,
    value: Callable[[Summary], float | None],
    words: Callable[[float], str],
    *,
    bands: bool = True,
) -> str:
    band = point.band(value)
    if band is None:
        return "-"
    off = (band.high - band.mean) / band.mean if band.mean else 0.0
    return words(band.mean) + (f" ±{min(off, 9.99):.0%}" if bands and off >= 0.005 else "")


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _seconds(value: float) -> str:
    if value < 0.9995:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s"


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold")


def _table(console: Console, *heads: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2 if console.width >= _ROOMY else 1, 0, 0))
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if not number else "right", no_wrap=True)
    return table
