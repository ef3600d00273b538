"""The README's curl examples, run as they stand but for the port."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.python.server.running import Running

ROOT = Path(__file__).parents[3]
COMMANDS = [
    command
    for page in ("README.md", "docs/server.md")
    for block in re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    for command in re.findall(r"^\$ (curl .*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE)
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_of_curl_works(smollm2: Running, command: str) -> None:
    command = command.replace("http://127.0.0.1:8000", smollm2.url)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    if '"stream": true' in command:
        assert done.stdout.rstrip().endswith("data: [DONE]")
        return
    answer = json.loads(done.stdout)
    assert "error" not in answer
    if "json_schema" in command:
        city = json.loads(answer["choices"][0]["message"]["content"])
        assert set(city) == {"country", "people"}


def test_there_are_examples() -> None:
    assert len(COMMANDS) >= 7
