"""SamplingParams: whatever is handed in is honoured or refused by its field's name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.params import SamplingParams

COUNTS = ("n", "top_k", "max_tokens", "min_tokens", "seed", "logprobs")
NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
FLAGS = ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens")
LISTS = ("stop", "stop_token_ids", "logit_bias")
FIELDS = (*COUNTS, *NUMBERS, *FLAGS, *LISTS)

ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.binary(max_size=3),
        st.complex_numbers(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.integers(), st.text(max_size=3)), inner, max_size=3),
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=2))
def test_any_value_is_taken_in_its_type_or_refused_by_name(values: dict[str, Any]) -> None:
    try:
        params = SamplingParams(**values)
    except BadInput as error:
        assert any(name in str(error) for name in values)
        assert "\n" not in str(error)
        return
    for name in COUNTS:
        assert type(getattr(params, name)) in (int, type(None))
    for name in NUMBERS:
        assert type(getattr(params, name)) is float
    for name in FLAGS:
        assert type(getattr(params, name)) is bool
    assert all(type(text) is str and text for text in params.stop)
    assert all(type(token) is int and token >= 0 for token in params.stop_token_ids)
    assert all(type(token) is int and token >= 0 for token in params.logit_bias)
    assert all(type(bias) is float for bias in params.logit_bias.values())


@pytest.mark.parametrize("name", [*COUNTS, *NUMBERS])
@pytest.mark.parametrize("value", [True, "1", [1], float("nan"), float("inf"), 10**400, 1j])
def test_no_number_at_all(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("name", COUNTS)
def test_half_a_count(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} must be a whole number, not 1.5"):
        SamplingParams(**{name: 1.5})


def test_numpy_values_become_plain_ones() -> None:
    params = SamplingParams(
        temperature=np.float32(0.5), top_k=np.int64(3), logit_bias={np.int32(7): np.float32(1)}
    )
    assert (params.temperature, params.top_k, params.logit_bias) == (0.5, 3, {7: 1.0})
    assert type(params.top_k) is int


def test_none_is_nothing_where_a_list_is_wanted() -> None:
    assert SamplingParams(stop=None, stop_token_ids=None, logit_bias=None) == SamplingParams()  # type: ignore[arg-type]


def test_bias_keys_as_json_writes_them() -> None:
    assert SamplingParams(logit_bias={"12": 1}).logit_bias == {12: 1.0}  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="logit_bias\\['abc'\\]"):
        SamplingParams(logit_bias={"abc": 1})  # type: ignore[dict-item]


def test_a_string_is_one_stop() -> None:
    assert SamplingParams(stop="ab").stop == ("ab",)
