"""The real models these tests run on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pellucid.hub import TerminalProgress, resolve


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model's GGUF file; fetched once if this machine does not have it."""
    return resolve("smollm2-135m", progress=TerminalProgress())


@pytest.fixture(scope="session")
def qwen_path() -> Path:
    """Qwen2.5-Coder-0.5B Instruct, Q4_K_M, where PELLUCID_TEST_QWEN names the file."""
    path = os.environ.get("PELLUCID_TEST_QWEN")
    if not path or not Path(path).is_file():
        pytest.skip("PELLUCID_TEST_QWEN names no file (491 MB, not fetched by a test run)")
    return Path(path)
