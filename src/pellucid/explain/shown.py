"""An explanation as a JSON object. Every part says what its numbers are.

measured: a clock or a counter of this run said so. predicted: it follows from costs and a machine's
limits. computed: the reference computed it from the weights.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pellucid.costs.roofline import Bound, Limits
from pellucid.explain.kv import KvAccount
from pellucid.explain.report import Elsewhere, Explanation, Here, Looked
from pellucid.explain.timed import Split, Stage
from pellucid.explain.whatif import Pair, WhatIf

Json = dict[str, Any]


def to_json(explanation: Explanation) -> Json:
    """All of it; parts that were not asked for are null."""
    looked, here, there = explanation.looked, explanation.here, explanation.elsewhere
    return {
        "model": asdict(explanation.model),
        "prompt": [asdict(token) for token in explanation.prompt],
        "computed": None if looked is None else _looked(looked),
        "here": None if here is None else _here(here),
        "elsewhere": None if there is None else _elsewhere(there),
    }


def _looked(looked: Looked) -> Json:
    return {
        "mark": "computed",
        "position": looked.position,
        "next": [asdict(token) for token in looked.top],
        "followed": asdict(looked.followed),
        "lens": [asdict(row) for row in looked.lens],
        "attention": asdict(looked.attention),
    }


def _here(here: Here) -> Json:
    timed = here.timed
    return {
        "backend": here.backend,
        "threads": here.threads,
        "machine": _limits(here.limits),
        "answer": {"token_ids": list(timed.token_ids), "text": timed.text, "mark": "measured"},
        "first_token": _split(timed.first, timed.first_spread, timed.runs),
        "later_token": None
        if timed.later is None or timed.later_spread is None
        else _split(timed.later, timed.later_spread, timed.runs),
        "prefill": _stage(timed.prefill, here.prefill),
        "decode": None
        if timed.decode is None or here.decode is None
        else _stage(timed.decode, here.decode),
        "kv_cache": _kv(here.kv),
        "what_if": [_what_if(one) for one in here.what_ifs],
    }


def _elsewhere(there: Elsewhere) -> Json:
    return {
        "mark": "predicted",
        "hardware": asdict(there.hardware),
        "machine": _limits(there.limits),
        "weights": there.bits,
        "positions": there.length,
        "whole_read_seconds": there.whole_read,
        "prefill": _bound(there.prefill),
        "decode": _bound(there.decode),
        "kv_cache": _kv(there.kv),
        "bytes_needed": there.needed,
        "machines_needed": there.chips,
        "what_if": [_what_if(one) for one in there.what_ifs],
    }


def _limits(limits: Limits) -> Json:
    return {
        "mark": limits.mark,
        "name": limits.name,
        "bytes_per_second": limits.bandwidth,
        "operations_per_second": limits.operations,
        "arithmetic": limits.arithmetic,
        "ridge": limits.ridge,
    }


def _split(split: Split, spread: tuple[float, float], runs: int) -> Json:
    return {
        "mark": "measured",
        "seconds": split.seconds,
        "parts": [{"name": name, "seconds": seconds} for name, seconds in split.parts],
        "unaccounted": split.unaccounted,
        "runs": runs,
        "fewest": spread[0],
        "most": spread[1],
    }


def _stage(stage: Stage, bound: Bound) -> Json:
    return {
        "tokens": stage.tokens,
        "steps": stage.steps,
        "measured": {"mark": "measured", "seconds": stage.seconds},
        "predicted": _bound(bound),
        "share_of_limit": bound.seconds / stage.seconds,
    }


def _bound(bound: Bound) -> Json:
    return {
        "mark": "predicted",
        "cost": asdict(bound.cost),
        "operations": bound.cost.operations,
        "bytes": bound.bytes,
        "operations_per_byte": bound.intensity,
        "ridge": bound.ridge,
        "limited_by": bound.limited_by,
        "memory_seconds": bound.memory_seconds,
        "arithmetic_seconds": bound.arithmetic_seconds,
        "seconds_at_least": bound.seconds,
    }


def _kv(kv: KvAccount) -> Json:
    return {
        "mark": "predicted" if kv.allocated is None else "measured",
        "formula": kv.formula,
        "terms": [
            {**asdict(term), "formula": term.formula, "bytes": term.bytes} for term in kv.terms
        ],
        "dtype": kv.dtype,
        "positions": kv.length,
        "bytes": kv.bytes,
        "padding": kv.padding,
        "pages": kv.pages,
        "page_size": kv.page_size,
        "bytes_of_pages": kv.held,
        "bytes_allocated": kv.allocated,
        "trouble": kv.trouble,
    }


def _what_if(what_if: WhatIf) -> Json:
    return {
        "name": what_if.kind.value,
        "change": what_if.change,
        "note": what_if.note,
        "predicted": _pair(what_if.predicted, "predicted"),
        "measured": None if what_if.measured is None else _pair(what_if.measured, "measured"),
    }


def _pair(pair: Pair, mark: str) -> Json:
    return {
        "mark": mark,
        "seconds_before": pair.before.seconds,
        "seconds_after": pair.after.seconds,
        "tokens_per_second_before": pair.before.tokens_per_second,
        "tokens_per_second_after": pair.after.tokens_per_second,
        "times": pair.times,
    }
