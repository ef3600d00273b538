"""selftest: it takes every way, sees a difference, and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM
from pellucid.bench import selftest
from pellucid.bench.selftest import run_selftest
from tests.python.engine.tiny import CONTEXT, write_model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("selftest") / "tiny.gguf")


def test_every_way_is_taken_and_gives_the_same(path: Path) -> None:
    first = run_selftest(path, length=20, backend="reference")
    names = ["alone", "crowd", "cached", "chunked", "preempted", "speculated"]
    assert [way.name for way in first.ways] == names
    assert first.ok
    assert first.n_tokens == 6 * 20


@pytest.mark.parametrize("what", ["generate", "logits"])
def test_a_difference_is_seen(what: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer of a crowd is tampered with."""
    true = getattr(LLM, what)

    def tampered(self: LLM, *arguments: Any) -> Any:
        found = true(self, *arguments)
        if self.max_model_len == CONTEXT:  # alone's
            return found
        if what == "logits":
            found[-1, 0] += 1e-6
        else:
            found[-1].outputs[0].token_ids[-1] ^= 1
        return found

    monkeypatch.setattr(selftest.LLM, what, tampered)
    report = run_selftest(path, length=20, backend="reference")
    assert not report.ok
    differ = [way.name for way in report.ways if not way.same]
    assert differ[:3] == ["crowd", "cached", "chunked"]


def test_the_command_says_it_in_one_object(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", "selftest", str(path), "--backend=reference", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["ok"] is True
    assert len(said["digest"]) == 32
    assert said["ways"][0]["name"] == "alone"
