"""Cases: what is planned is what their names say, on pages of their own."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.bench.cases import CHUNK, PAGE_SIZE, SHORT_CONTEXT, Case, sweep
from pellucid.bench.spread import Spread
from pellucid.core.errors import BadInput
from pellucid.core.plan import Plan
from pellucid.core.spec import LayerSpec, ModelSpec

LAYER = LayerSpec(n_heads=1, n_kv_heads=1, head_dim=16, ffn_dim=16, attention_scale=0.25)
SPEC = ModelSpec("llama", 16, 100, 8192, 1e-5, (LAYER,))


def positions(plans: list[Plan]) -> dict[int, list[int]]:
    """Of each sequence, in the order they are computed."""
    seen: dict[int, list[int]] = {}
    for plan in plans:
        for span in plan.spans:
            seen.setdefault(span.sequence, []).extend(range(span.start, span.end))
    return seen


@given(st.integers(1, 2 * CHUNK + 5))
def test_prefill_computes_each_position_once_and_asks_for_the_last(length: int) -> None:
    case = Case("prefill", length)
    plans = list(case.plans(SPEC.vocab_size))
    assert not list(case.preparation(SPEC.vocab_size))
    assert positions(plans) == {0: list(range(length))}
    assert [plan.n_logits for plan in plans] == [0] * (len(plans) - 1) + [1]
    assert all(plan.n_tokens <= CHUNK for plan in plans)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 2 * CHUNK))
def test_decode_goes_on_from_its_context(sequences: int, steps: int, context: int) -> None:
    case = Case("decode", steps, sequences, context)
    before = positions(list(case.preparation(SPEC.vocab_size)))
    plans = list(case.plans(SPEC.vocab_size))
    assert before == {s: list(range(context)) for s in range(sequences)}
    assert positions(plans) == {s: list(range(context, context + steps)) for s in range(sequences)}
    assert [(plan.n_tokens, plan.n_logits) for plan in plans] == [(sequences, sequences)] * steps
    assert case.total_tokens == sum(plan.n_tokens for plan in plans)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 100))
def test_pages_cover_and_are_not_shared(sequences: int, steps: int, context: int) -> None:
    case = Case("decode", steps, sequences, context)
    owner: dict[int, int] = {}
    for plan in [*case.preparation(SPEC.vocab_size), *case.plans(SPEC.vocab_size)]:
        for span in plan.spans:
            assert len(span.pages) * PAGE_SIZE >= span.end
            assert all(0 <= page < case.n_pages for page in span.pages)
            assert all(
                owner.setdefault(page, span.sequence) == span.sequence for page in span.pages
            )
            assert all(0 <= token < SPEC.vocab_size for token in span.tokens)


def test_the_usual_cases() -> None:
    names = [case.name for case in sweep(SPEC, 32, None, (1, 8), None)]
    assert names == [
        "prefill 512",
        f"decode 1, context {SHORT_CONTEXT}",
        f"decode 8, context {SHORT_CONTEXT}",
        "decode 1, context 1024",
        "decode 1, context 4096",
    ]


def test_the_usual_cases_of_a_short_context_leave_out_what_does_not_fit() -> None:
    spec = dataclasses.replace(SPEC, context_length=1100)
    assert [case.positions for case in sweep(spec, 32, None, (), None)] == [512, 1056]


def test_what_was_asked_for_and_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="decode 1, context 8190: it takes 8222 positions"):
        sweep(SPEC, 32, (), (), (8190,))
    with pytest.raises(BadInput, match="nothing to measure"):
        sweep(SPEC, 32, (), (), ())


def test_spread() -> None:
    spread = Spread.of(iter([3.0, 1.0, 2.0]))
    assert (spread.median, spread.low, spread.high) == (2.0, 1.0, 3.0)
    assert spread.to_json()["values"] == [3.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="no measurements"):
        Spread.of([])
