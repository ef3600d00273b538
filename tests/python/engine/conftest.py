from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM
from tests.python.engine.tiny import write_model

DEFAULTS = {"backend": "reference", "kv_cache_memory_bytes": 1 << 20, "seed": 0}


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def make_llm(tiny_path: Path) -> Callable[..., LLM]:
    """An engine on the tiny model; arguments as `LLM`'s."""

    def make(**arguments: Any) -> LLM:
        return LLM(tiny_path, **{**DEFAULTS, **arguments})

    return make


@pytest.fixture(scope="session")
def llm(make_llm: Callable[..., LLM]) -> LLM:
    """One engine for every test that does not ask for another."""
    return make_llm()
