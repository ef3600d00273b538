"""Structured outputs on the native backend: its sampler, its pages, its threads."""

from __future__ import annotations

import pytest

from tests.python.engine.test_structured import (
    check_company,
    check_drawn_freely,
    check_free_choice,
    check_preemption,
)
from tests.python.engine.traffic import MakeLLM


def test_company_changes_no_answer(make_llm: MakeLLM) -> None:
    check_company(make_llm, backend="native", threads=2)


def test_preemption_changes_no_answer(make_llm: MakeLLM) -> None:
    check_preemption(make_llm, backend="native", threads=2)


def test_a_free_choice_that_is_allowed_is_the_masked_one(
    make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_free_choice(make_llm, monkeypatch, backend="native", threads=2)


def test_masks_in_advance_change_no_drawn_answer(
    make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_drawn_freely(make_llm, monkeypatch, backend="native", threads=2)
