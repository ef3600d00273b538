from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.python.engine.tiny import write_model
from tests.python.server.fake import FakeClient


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def make_fake(tiny_path: Path) -> Callable[..., FakeClient]:
    def make(*arguments: Any, **options: Any) -> FakeClient:
        return FakeClient(tiny_path, *arguments, **options)

    return make
