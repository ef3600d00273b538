"""Copied pages answer for the ones they came from and are nobody else's afterwards."""

from __future__ import annotations

import pytest

from pellucid.models.registry import Model
from pellucid.ops.native import NativeOps
from pellucid.quant.types import TensorType
from tests.native.families import tiny_model
from tests.page_copies import FAULTS, check_copies, check_no_pairs, check_refusal


def model(architecture: str, kv_dtype: str = "f16") -> Model:
    return tiny_model(architecture, NativeOps(threads=2, kv_dtype=kv_dtype), TensorType.Q8_0)


@pytest.mark.parametrize("kv_dtype", ["f16", "f32", "int8", "int4"])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Gemma3ForCausalLM"])
@pytest.mark.parametrize("page_size", [16, 48])
def test_a_sequence_goes_on_upon_its_copy(architecture: str, kv_dtype: str, page_size: int) -> None:
    check_copies(model(architecture, kv_dtype), page_size)


@pytest.mark.parametrize("fault", FAULTS)
def test_pairs_that_cannot_be(fault: str) -> None:
    check_refusal(model("LlamaForCausalLM"), 16, fault)


def test_no_pairs() -> None:
    check_no_pairs(model("LlamaForCausalLM"), 16)
