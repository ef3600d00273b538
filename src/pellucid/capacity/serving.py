"""A server of our own in a process of its own, for as long as something is measured."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pellucid.core.errors import PellucidError

_STARTS_WITHIN: Final = 300.0  # seconds: a large model is read from a slow disk
_ENDS_WITHIN: Final = 30.0


@contextlib.contextmanager
def served(model: Path, flags: Sequence[str]) -> Iterator[int]:
    """The port of `pellucid serve`, on this machine alone. Raises `PellucidError` with its last
    words if it does not start."""
    command = [sys.executable, "-m", "pellucid", "serve", str(model), "--port", "0", *flags]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)
        try:
            yield _port(process, log.fileno())
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: subprocess.Popen[bytes], log: int) -> int:
    ends = time.monotonic() + _STARTS_WITHIN
    told = ""
    while time.monotonic() < ends:
        ended = process.poll() is not None
        told = Path(f"/proc/self/fd/{log}").read_text("utf-8", "replace")
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", told):
            return int(found[1])
        if ended:
            break
        time.sleep(0.05)
    last = told.strip().splitlines()[-1:] or ["it said nothing"]
    raise PellucidError(f"the server does not start: {last[0][:300]}")
