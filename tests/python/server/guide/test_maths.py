"""Formulas as MathML: what is read, and what is refused by name."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.guide.maths import FormulaError, mathml


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x", "<mi>x</mi>"),
        ("12.5", "<mn>12.5</mn>"),
        ("49,152", "<mn>49,152</mn>"),
        ("a - b", "<mrow><mi>a</mi><mo>−</mo><mi>b</mi></mrow>"),
        (r"\frac{a}{2}", "<mfrac><mi>a</mi><mn>2</mn></mfrac>"),
        (r"\sqrt{ 64 }", "<msqrt><mn>64</mn></msqrt>"),
        ("x_i^2", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"),
        ("x^2_i", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"),
        (r"\text{a < b}", "<mtext>a &lt; b</mtext>"),
        (r"\theta_{ij}", "<msub><mi>θ</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>"),
        ("a < b", "<mrow><mi>a</mi><mo>&lt;</mo><mi>b</mi></mrow>"),
    ],
)
def test_a_formula_is_what_it_says(source: str, expected: str) -> None:
    assert mathml(source) == f"<math>{expected}</math>"


def test_limits_of_a_sum_stand_below_and_above_where_it_is_displayed() -> None:
    assert "<munderover>" in mathml(r"\sum_{i=0}^k a^i", display=True)
    assert "<msubsup>" in mathml(r"\sum_{i=0}^k a^i")
    assert 'display="block"' in mathml("x", display=True)


def test_delimiters_grow_around_what_they_hold() -> None:
    found = mathml(r"\left( \frac{a}{b} \right]")
    assert '<mo fence="true">(</mo><mfrac>' in found
    assert found.endswith('<mo fence="true">]</mo></mrow></math>')


@pytest.mark.parametrize(
    "source",
    [
        r"\frac{a}", "{", "}", "a^", "a^2^3", "x_", r"\nosuch", r"\left( a", r"a \right)",
        r"\text a", r"\left x \right)", "a & b", "^2", r"\frac", "_",
    ],
)  # fmt: skip
def test_half_a_formula_is_refused(source: str) -> None:
    with pytest.raises(FormulaError, match="formula"):
        mathml(source)


@given(st.text(alphabet="ab12{}_^\\ fracsqrtlefight()<>&\"'+-", max_size=24), st.booleans())
def test_whatever_is_written_is_well_formed_or_refused(source: str, display: bool) -> None:
    try:
        found = mathml(source, display=display)
    except FormulaError:
        return
    ET.fromstring(found.replace("&#x2061;", ""))
