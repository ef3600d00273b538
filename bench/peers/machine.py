"""Processes beside the workers: one that keeps a core busy, one timed to its first output."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

_SPIN = "while True:\n    pass\n"


@contextlib.contextmanager
def spinner(wanted: bool) -> Iterator[None]:
    """Another process busy on the last of this process's cores, while the block runs."""
    if not wanted:
        yield
        return
    pin = ""
    if hasattr(os, "sched_getaffinity"):
        core = max(os.sched_getaffinity(0))
        pin = f"import os; os.sched_setaffinity(0, [{core}])\n"
    process = subprocess.Popen([sys.executable, "-c", pin + _SPIN])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def first_output(command: list[str], timeout: float = 120.0) -> float:
    """Seconds from the start of a process to the first byte it writes.

    Compiled Python modules are kept, as an installed program's are. Raises `RuntimeError` if it
    writes none.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        seconds = time.perf_counter() - begin
        try:
            process.stdout.read()
            process.wait(timeout)
        finally:
            process.kill()
    if not first:
        raise RuntimeError(f"{command[0]}: it wrote nothing and ended with {process.returncode}")
    return seconds
