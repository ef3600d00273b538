"""A plan's spans, read by native code, are the arrays that `lower` makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.plan import Plan, Span
from pellucid.models.registry import Model
from pellucid.ops.native import NativeOps
from pellucid.ops.step import lower
from pellucid.quant.types import TensorType
from tests.native.cases import same_bits
from tests.native.families import tiny_model
from tests.native.test_models import tokens_of

PAGE_SIZE, N_PAGES = 16, 12


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("LlamaForCausalLM", NativeOps(threads=2), TensorType.Q8_0)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Prompts from their beginning, on pages of their own."""
    spans, free = [], list(range(N_PAGES))
    for sequence in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 40))
        pages = tuple(free.pop() for _ in range(-(-length // PAGE_SIZE)))
        wanted = draw(st.integers(0, length))
        spans.append(Span(sequence, 0, tokens_of(length, sequence), pages, wanted))
    return Plan(tuple(spans), PAGE_SIZE)


@given(plans())
def test_spans_give_what_their_arrays_give(model: Model, plan: Plan) -> None:
    cache = model.ops.new_cache(model.spec, N_PAGES, PAGE_SIZE)
    expected = model._logits(lower(plan, cache))
    assert same_bits(model.forward(plan, cache), expected)
    listed = Plan(
        tuple(Span(x.sequence, 0, x.tokens, list(x.pages), x.n_logits) for x in plan.spans),
        PAGE_SIZE,
    )
    assert same_bits(model.forward(listed, cache), expected)  # a list of pages will do


@pytest.mark.parametrize(
    ("span", "error", "message"),
    [
        ((0, 0, (1, 2), (3,)), ValueError, r"a span is .sequence, start, tokens, pages, n_logits."),
        (3, ValueError, "a span is"),
        (Span(7, 0, (1, 2), (3,), 3), ValueError, "sequence 7: 3 logits of 2 rows"),
        (Span(7, 0, (1, 2), (3,), -1), ValueError, "sequence 7: -1 logits"),
        (Span(7, 0, (), (3,), 0), ValueError, "sequence 0: rows 0 to 0"),
        (Span(7, 0, (1, 97), (3,), 1), ValueError, "token 97 at row 1"),
        (Span(7, 16, (1,), (3,), 1), ValueError, "1 pages of 16 do not hold positions to 17"),
        (Span(7, -1, (1,), (3,), 1), ValueError, "position -1 at row 0"),
        (Span(7, 0, (1,), (12,), 1), ValueError, "page 12 is not among"),
        (Span(7, 2**31 - 1, (1,), (3,), 1), ValueError, "beyond 32 bits"),
        (Span(7, 0, (2**40,), (3,), 1), ValueError, "beyond 32 bits"),
        (Span(7, 0, 5, (3,), 1), TypeError, "tokens"),  # type: ignore[arg-type]
        (Span(7, 0, (1,), ("three",), 1), TypeError, "integer"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_span_is_refused_by_name(
    model: Model, span: Any, error: type[Exception], message: str
) -> None:
    cache = model.ops.new_cache(model.spec, N_PAGES, PAGE_SIZE)
    program = model._logits._program  # type: ignore[attr-defined]
    with pytest.raises(error, match=message):
        program.run_plan(cache, (span,))


def test_another_page_size_is_refused(model: Model) -> None:
    cache = model.ops.new_cache(model.spec, N_PAGES, PAGE_SIZE)
    with pytest.raises(ValueError, match="page_size is 32"):
        model.forward(Plan((Span(0, 0, (1,), (3,), 1),), 32), cache)


class Shortens:
    """A number that empties the list it is in as it is read."""

    def __init__(self, of: list[Any]) -> None:
        self.of = of

    def __index__(self) -> int:
        self.of.clear()
        return 1


def test_a_list_may_shrink_while_it_is_read(model: Model) -> None:
    cache = model.ops.new_cache(model.spec, N_PAGES, PAGE_SIZE)
    model.forward(Plan((Span(0, 0, (1,), (3,), 1),), PAGE_SIZE), cache)  # rotary angles are there
    program = model._logits._program  # type: ignore[attr-defined]
    tokens: list[Any] = []
    tokens += [Shortens(tokens)] * 5
    pages: list[Any] = []
    pages += [Shortens(pages)] * 5
    assert program.run_plan(cache, ((0, 0, tokens, pages, 1),)).shape == (1, 97)
