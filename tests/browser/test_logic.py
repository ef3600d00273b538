"""The pages' logic by itself, under node: scales, the selection, the store, what records mean."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pellucid.server.pages import WEB

UNIT = Path(__file__).parent / "unit"


def test_the_logic_of_the_pages(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here: the pages' logic is tested with it")
    shutil.copytree(WEB, tmp_path / "web")
    shutil.copytree(UNIT, tmp_path / "unit")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        [node, "--test", "unit/"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
