"""What `deploy/` holds names only what exists, and systemd reads its unit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.server.options import OPTIONS
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

Make = Callable[..., FakeClient]
Serve = Callable[..., Running]

DEPLOY = Path(__file__).parents[3] / "deploy"
VARIABLES = {option.variable for option in OPTIONS} | {"PELLUCID_HOME"}
INSTRUCTIONS = {
    "FROM", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "ENV", "EXPOSE", "STOPSIGNAL",
    "HEALTHCHECK", "ENTRYPOINT",
}  # fmt: skip


@pytest.mark.parametrize("name", ["pellucid.service", "Containerfile"])
def test_variables_are_settings(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert set(re.findall(r"PELLUCID_[A-Z_]+", text)) <= VARIABLES


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "pellucid.service"
    text = (DEPLOY / "pellucid.service").read_text()
    unit.write_text(text.replace("/opt/pellucid/bin/pellucid", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=120
    )
    about_it = [line for line in done.stderr.splitlines() if "pellucid.service" in line]
    assert not about_it


def test_the_unit_gives_the_server_time_to_end() -> None:
    text = (DEPLOY / "pellucid.service").read_text()
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    [grace] = [option.default for option in OPTIONS if option.name == "shutdown_timeout"]
    assert int(seconds) > grace + 10


def test_what_was_set_wrong_is_not_started_again_and_again() -> None:
    text = (DEPLOY / "pellucid.service").read_text()
    assert re.findall(r"^RestartPreventExitStatus=(\d+)$", text, re.MULTILINE) == ["2"]


def test_the_container_is_made_of_known_steps() -> None:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    steps = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert {step.split()[0] for step in steps} <= INSTRUCTIONS
    assert [step for step in steps if step.startswith("ENTRYPOINT")] == [
        'ENTRYPOINT ["pellucid", "serve"]'
    ]


def test_the_health_check_is_what_it_says(make_fake: Make, serve: Serve) -> None:
    """As the container runs it, at the port of a server that is then closed to all."""
    server = serve(make_fake())
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    [command] = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    _, *arguments = json.loads(command)
    port = server.url.rpartition(":")[2]
    assert sum("127.0.0.1:8000/" in argument for argument in arguments) == 1
    check = [sys.executable, *(a.replace(":8000/", f":{port}/") for a in arguments)]
    assert subprocess.run(check, timeout=60).returncode == 0
    server.call(server.app.state.guard.refuse_more)
    assert subprocess.run(check, stderr=subprocess.DEVNULL, timeout=60).returncode != 0
