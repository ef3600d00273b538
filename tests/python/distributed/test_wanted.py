"""What may be asked for, and what is said where Ray is not there."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from pellucid import BadInput
from pellucid.distributed.extra import ray_for
from pellucid.distributed.wanted import Wanted
from pellucid.server.operation import replicas_wanted, settings_of
from pellucid.server.options import choose


def wanted(**flags: object) -> Wanted | None:
    return replicas_wanted(choose(flags, {}))


def test_without_a_word_of_replicas_there_is_no_ray() -> None:
    assert wanted() is None


def test_a_number_or_a_range() -> None:
    fixed = wanted(replicas=3)
    assert fixed is not None
    assert (fixed.least, fixed.most) == (3, 3)
    ranged = wanted(min_replicas=2, max_replicas=5)
    assert ranged is not None
    assert (ranged.least, ranged.most) == (2, 5)
    grown = wanted(max_replicas=4)
    assert grown is not None
    assert (grown.least, grown.most) == (1, 4)
    assert settings_of(choose({"replicas": 3}, {}), "m").guard.running == 3 * 32


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"replicas": 2, "max_replicas": 3}, "fixed number"),
        ({"min_replicas": 3, "max_replicas": 2}, "below"),
        ({"replicas": 2, "routing": "random"}, "routing"),
    ],
)
def test_what_contradicts_itself_is_refused(flags: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        wanted(**flags)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"--replicas needs Ray.*pip install 'pellucid\[ray\]'"):
        ray_for("--replicas")


def test_the_server_imports_no_ray() -> None:
    program = (
        "import sys, pellucid.server.operation, pellucid.cli.serve; assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
