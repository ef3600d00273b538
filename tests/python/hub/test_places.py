from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.hub.places import home, hub_cache, is_offline, write_atomically

SETTINGS: list[dict[str, str]] = [
    {},
    {"XDG_CACHE_HOME": "/elsewhere"},
    {"HF_HOME": "/big/hf", "XDG_CACHE_HOME": "/elsewhere"},
    {"HF_HOME": "~/hf"},
    {"HUGGINGFACE_HUB_CACHE": "/old", "HF_HOME": "/big/hf"},
    {"HF_HUB_CACHE": "/new", "HUGGINGFACE_HUB_CACHE": "/old"},
    {"HF_HUB_CACHE": "$HOME/cache"},
]
VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_hub_cache_is_where_huggingface_hub_has_it(
    setting: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    code = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    theirs = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True
    )
    assert hub_cache() == Path(theirs.stdout.strip())


def test_home_follows_its_variable_and_then_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_HOME", "~/mine")
    assert home() == Path.home() / "mine"
    monkeypatch.delenv("PELLUCID_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.setattr(sys, "platform", "linux")
    assert home() == Path("/elsewhere/pellucid")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert home() == Path.home() / "Library/Caches/pellucid"


@pytest.mark.parametrize("name", ["PELLUCID_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_each_offline_variable_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_offline()
    assert is_offline(True)
    for value, expected in (("1", True), ("true", True), ("YES", True), ("0", False), ("", False)):
        monkeypatch.setenv(name, value)
        assert is_offline() is expected


def test_a_failed_write_leaves_the_old_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record"
    write_atomically(path, "old")

    def fail(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text[:1].encode(encoding))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.glob("record*")) == [path]
