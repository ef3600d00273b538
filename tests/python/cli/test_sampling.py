from __future__ import annotations

import pytest

from pellucid.cli.sampling import DEFAULT_MAX_TOKENS, in_effect, sampling_params
from pellucid.core.errors import BadInput
from pellucid.core.params import SamplingParams

SILENT = SamplingParams()


def test_flags_come_first_then_the_model_then_ours() -> None:
    ours = sampling_params(SILENT, temperature=None)
    assert (ours.temperature, ours.top_p, ours.max_tokens) == (0.7, 0.95, DEFAULT_MAX_TOKENS)
    model = SamplingParams(temperature=0.3, top_k=20)
    theirs = sampling_params(model, top_k=None, max_tokens=5)
    assert (theirs.temperature, theirs.top_k, theirs.top_p) == (0.3, 20, 1.0)
    assert theirs.max_tokens == 5
    assert sampling_params(model, temperature=0.0, top_k=1).temperature == 0.0
    assert sampling_params(SILENT, temperature=0.0).greedy


def test_zero_is_a_value_that_was_given() -> None:
    params = sampling_params(SILENT, seed=0, logprobs=0, presence_penalty=0.0)
    assert (params.seed, params.logprobs) == (0, 0)


def test_biases_by_token() -> None:
    params = sampling_params(SILENT, logit_bias=["5=-100", "17=2.5"])
    assert params.logit_bias == {5: -100.0, 17: 2.5}
    for bad in ("5", "=1", "x=1", "5=", "5=y", "5=1=2"):
        with pytest.raises(BadInput, match="ID=VALUE"):
            sampling_params(SILENT, logit_bias=[bad])


def test_every_field_is_shown_as_json_has_it() -> None:
    shown = in_effect(sampling_params(SILENT, stop=["a", "b"], logit_bias=["1=2"]))
    assert shown["stop"] == ["a", "b"]
    assert shown["logit_bias"] == {1: 2.0}
    assert set(shown) == set(SamplingParams.__dataclass_fields__)
