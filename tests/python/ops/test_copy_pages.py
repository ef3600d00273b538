"""Copied pages answer for the ones they came from and are nobody else's afterwards."""

from __future__ import annotations

import pytest

from tests.page_copies import FAULTS, check_copies, check_no_pairs, check_refusal
from tests.python.ops.test_batch_invariance import MODELS


@pytest.mark.parametrize("kind", MODELS)
def test_a_sequence_goes_on_upon_its_copy(kind: str) -> None:
    check_copies(MODELS[kind], page_size=4)


@pytest.mark.parametrize("fault", FAULTS)
def test_pairs_that_cannot_be(fault: str) -> None:
    check_refusal(MODELS["plain"], 4, fault)


def test_no_pairs() -> None:
    check_no_pairs(MODELS["plain"], 4)
