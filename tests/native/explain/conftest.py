from __future__ import annotations

from pathlib import Path

import pytest

from tests.python.engine.tiny import write_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a file."""
    return write_model(tmp_path_factory.mktemp("explain") / "tiny.gguf")
