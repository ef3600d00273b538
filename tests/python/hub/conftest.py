from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python.hub.fake_hub import FakeHub, serve


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches, and no way out: the hub is a port where nobody listens, pip sees one folder."""
    for name in ("PELLUCID_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    hub = FakeHub()
    server = serve(hub)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    yield hub
    server.shutdown()
    server.server_close()
