"""What would change: the same load with one thing different at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pellucid.capacity.machine import with_kv
from pellucid.capacity.memory import fit_memory
from pellucid.capacity.report import Report, WhatIf
from pellucid.core.errors import BadInput
from pellucid.simulate.answers import FLEET, Question, token_cost
from pellucid.simulate.enough import served
from pellucid.simulate.setup import Guessing, Setup
from pellucid.simulate.sweep import Sweep

GUESSES, ACCEPTED = 4, 0.6  # of speculation that nobody asked for: an n-gram's on text it repeats
_SAMPLE = FLEET // 2  # replicas, where there are hundreds
_FEWER = 2  # of requests: a change is seen against the same ones


@dataclass(frozen=True)
class _Variant:
    change: str
    setup: Setup | None
    trouble: str = ""


def what_ifs(report: Report, sweep: Sweep) -> list[WhatIf]:
    """Each change, simulated with the first seed alone and fewer requests; first of all none."""
    variants = [_Variant("as asked", report.question.setup), *_variants(report)]
    cases = []
    for variant in variants:
        if variant.setup is not None:
            question = _smaller(report.question, variant.setup)
            cases += [question.crowd, question.sample(report.chosen.rate, report.replicas, _SAMPLE)]
    points = iter(sweep.points(cases))
    found = []
    for variant in variants:
        if variant.setup is None:
            found.append(WhatIf(variant.change, trouble=variant.trouble))
            continue
        crowd, point = next(points), next(points)
        cost = None
        if report.machine.per_hour is not None:
            cost = token_cost(crowd, report.machine.per_hour, 1)
        found.append(WhatIf(variant.change, served(crowd), point, cost))
    return found


def _smaller(question: Question, setup: Setup) -> Question:
    requests = max(20, question.requests // _FEWER)
    return replace(question, setup=setup, requests=requests, seeds=question.seeds[:1])


def _variants(report: Report) -> Iterator[_Variant]:
    setup, limits = report.question.setup, report.fit.limits
    for times in (0.5, 2, 4):
        places = max(1, round(limits.max_num_seqs * times))
        if places != limits.max_num_seqs:
            yield _with_places(report, places)
    for chunk in (limits.max_num_batched_tokens // 4, limits.max_num_batched_tokens * 4):
        if chunk >= limits.max_num_seqs:
            changed = replace(limits, max_num_batched_tokens=chunk)
            yield _Variant(f"--max-num-batched-tokens {chunk}", replace(setup, limits=changed))
    for kv in ("f16", "int8", "int4"):
        if kv != report.wishes.kv_dtype:
            yield _other_kv(report, kv)
    for mix in ("f16", "q8_0", "q4_k_m"):
        if mix != report.wishes.quantization:
            yield _other_weights(report, mix)
    if setup.guessing is None:
        guessing = Guessing(GUESSES, ACCEPTED)
        words = f"{GUESSES} guesses, {ACCEPTED:.0%} right (assumed)"
        yield _Variant(words, replace(setup, guessing=guessing))
    else:
        yield _Variant("without speculation", replace(setup, guessing=None))
    caching = not limits.prefix_caching
    changed = replace(limits, prefix_caching=caching)
    words = f"{'with' if caching else 'without'} prefix caching"
    yield _Variant(words, replace(setup, limits=changed))


def _with_places(report: Report, places: int) -> _Variant:
    """Another number of sequences at once, with the pages that they are given."""
    words = f"--max-num-seqs {places}"
    batched = max(report.fit.limits.max_num_batched_tokens, places)
    asked = replace(report.wishes.asked, max_num_seqs=places, max_num_batched_tokens=batched)
    try:
        fit = fit_memory(report.subject, report.machine, asked)
    except BadInput as error:
        return _Variant(words, None, str(error))
    return _Variant(words, replace(report.question.setup, limits=fit.limits))


def _other_kv(report: Report, kv: str) -> _Variant:
    words = f"--kv-cache-dtype {kv}"
    subject, setup = report.subject.with_kv(kv), report.question.setup
    try:
        fit = fit_memory(subject, report.machine, report.wishes.asked)
    except BadInput as error:
        return _Variant(words, None, str(error))
    times = with_kv(setup.times, report.subject, kv)
    return _Variant(words, replace(setup, limits=fit.limits, times=times))


def _other_weights(report: Report, mix: str) -> _Variant:
    words = f"--quantization {mix}"
    machine = report.machine
    if machine.kept is not None:
        return _Variant(words, None, "the calibration is of other weights: calibrate a file in it")
    subject = report.subject.quantized(mix)
    try:
        fit = fit_memory(subject, machine, report.wishes.asked)
    except BadInput as error:
        return _Variant(words, None, str(error).partition(":")[0])
    times = machine.for_bits(subject.priced.matrix_bits).times(subject)
    return _Variant(words, replace(report.question.setup, limits=fit.limits, times=times))
