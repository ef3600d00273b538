"""What may be asked of speculation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from pellucid.core.errors import BadInput
from pellucid.speculation.settings import SpeculativeSettings, from_flags


def test_flags_say_it_as_arguments_do() -> None:
    assert from_flags(None, None, None) is None
    assert from_flags("ngram", None, 5) == {"method": "ngram", "tokens": 5}
    assert from_flags(None, "small", None) == {"method": "draft", "model": "small"}
    with pytest.raises(BadInput, match="without a method or a model"):
        from_flags(None, None, 5)
    with pytest.raises(BadInput, match="takes no model"):
        from_flags("ngram", "small", None)
    for method, tokens, named in (("guess", None, "one of ngram"), ("ngram", 1000, "1 to 32")):
        with pytest.raises(BadInput, match=named):
            from_flags(method, None, tokens)


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


def test_of_a_draft_model_alone() -> None:
    for field, value in ("quantization", "q4_0"), ("vocabulary", 300):
        with pytest.raises(BadInput, match=f"{field} is for a draft model"):
            SpeculativeSettings.of({"method": "ngram", field: value})
    with pytest.raises(BadInput, match="vocabulary must be from 1"):
        SpeculativeSettings.of({"method": "draft", "model": "x", "vocabulary": 0})
