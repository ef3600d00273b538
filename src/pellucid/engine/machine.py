"""The machine's peaks for whoever serves: measured once, and kept with what they depend on."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pellucid import __version__
from pellucid.core.record import MachineRecord
from pellucid.hub.places import home, write_atomically

logger = logging.getLogger("pellucid")

# Beyond most processors' caches, and read in a fraction of a second.
_READ_BYTES: Final = 128 << 20


def machine_peaks(threads: int, kept_in: Path | None = None) -> MachineRecord:
    """What `threads` threads read and compute at best here, measured in less than a second unless
    it was before: by the same version, on a processor of the same name. `kept_in` is where that is
    kept; None is Pellucid's own folder."""
    folder = home() if kept_in is None else kept_in
    path = folder / "machine.json"
    key = _key(threads)
    known = _read(path)
    if key in known:
        with contextlib.suppress(TypeError):  # written by another version after all
            return MachineRecord(**known[key])
    found = _measure(threads)
    known[key] = asdict(found)
    try:
        write_atomically(path, json.dumps(known, indent=1) + "\n")
    except OSError as error:
        logger.info("the machine's peaks are not kept: %s", error)
    return found


def _measure(threads: int) -> MachineRecord:
    from pellucid.ops.native.peaks import Probe

    began = time.perf_counter()
    peaks = Probe(threads, _READ_BYTES).measure()
    return MachineRecord(
        read_bytes_per_second=peaks.read,
        int8_operations_per_second=peaks.int8,
        f32_operations_per_second=peaks.f32,
        threads=threads,
        measured_at=time.time(),
        measured_in_s=round(time.perf_counter() - began, 3),
    )


def _key(threads: int) -> str:
    from pellucid import _native

    return " / ".join(
        (__version__, processor_name(), f"{threads} threads", str(_native.matmul.chosen()))
    )


def processor_name() -> str:
    """As the system calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or f"{platform.machine()} with {os.cpu_count()} cores"


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """What is kept; nothing where it cannot be read: it is measured again then."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, dict)}
