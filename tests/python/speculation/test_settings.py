"""What may be asked of speculation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from pellucid.core.errors import BadInput
from pellucid.speculation.settings import FIELDS, SpeculativeSettings, from_flags


def test_flags_say_it_as_arguments_do() -> None:
    assert from_flags({}) is None
    assert from_flags(dict.fromkeys(FIELDS) | {"adaptive": True}) is None
    ngram = {"method": "ngram", "tokens": 5}
    assert from_flags({**ngram, "model": None, "adaptive": True}) == ngram
    assert from_flags({"model": "small"}) == {"method": "draft", "model": "small"}
    whole = {"model": "x", "quantization": "q4_0", "vocabulary": 9, "rule": "rejection"}
    whole |= {"method": "draft", "adaptive": False}
    assert from_flags(whole) == whole


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"tokens": 5}, "tokens without a method or a model"),
        ({"adaptive": False}, "adaptive without a method or a model"),
        ({"method": "ngram", "model": "small"}, "takes no model"),
        ({"method": "guess"}, "one of ngram"),
        ({"method": "ngram", "tokens": 1000}, "1 to 32"),
        ({"method": "ngram", "rule": "hope"}, "rule must be one of exact, rejection"),
        ({"method": "ngram", "layers": 2}, "layers are for early-exit"),
        ({"model": "x", "layers": 2}, "layers are for early-exit"),
        ({"method": "ngram", "quantization": "q4_0"}, "quantization is for a draft model"),
        ({"method": "early-exit", "vocabulary": 9}, "vocabulary is for a draft model"),
        ({"model": "x", "vocabulary": 0}, "vocabulary must be from 1"),
    ],
)
def test_flags_that_do_not_go_together_are_named(flags: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        from_flags(flags)


@pytest.mark.parametrize("field", [field.name for field in fields(SpeculativeSettings)])
@pytest.mark.parametrize("value", [5.5, b"x", [], {}], ids=repr)
def test_a_value_of_another_kind_is_named(field: str, value: Any) -> None:
    layers = {"method": "early-exit"}
    good = layers if field == "layers" else {"method": "draft", "model": "x"}
    with pytest.raises(BadInput, match=f"speculative: {field} must be"):
        SpeculativeSettings.of({**good, field: value})


def test_what_is_on_is_told_with_its_defaults() -> None:
    assert SpeculativeSettings.of({"method": "ngram"}).told() == {
        "method": "ngram",
        "rule": "exact",
        "tokens": 12,
    }
    told = SpeculativeSettings.of({"method": "draft", "model": "x", "tokens": 3}).told()
    assert told == {"method": "draft", "rule": "exact", "tokens": 3, "model": "x"}
    more = {"quantization": "q4_0", "vocabulary": 9, "adaptive": False}
    told = SpeculativeSettings.of({"method": "draft", "model": "x", **more}).told()
    assert told == {"method": "draft", "rule": "exact", "tokens": 6, "model": "x", **more}


def test_of_a_draft_model_alone() -> None:
    for field, value in ("quantization", "q4_0"), ("vocabulary", 300):
        with pytest.raises(BadInput, match=f"{field} is for a draft model"):
            SpeculativeSettings.of({"method": "ngram", field: value})
    with pytest.raises(BadInput, match="vocabulary must be from 1"):
        SpeculativeSettings.of({"method": "draft", "model": "x", "vocabulary": 0})
