"""How much memory there is to give."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_FALLBACK = 4 << 30  # where the system does not say


def available_memory() -> int:
    """Bytes that new allocations can take without swapping, as the system and the control group
    of this process estimate them."""
    return min(_system_available(), _group_available())


def _system_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:  # no such file on macOS: half of what is installed
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return _FALLBACK


def _group_available(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What a container's limit leaves (control groups v2); a huge number without a limit.

    Cached files count as used there, but give way to allocations.
    """
    try:
        limit = int((root / "memory.max").read_text())
        used = int((root / "memory.current").read_text())
        lines = (root / "memory.stat").read_text().splitlines()
        stat = {name: int(value) for name, value in map(str.split, lines)}
    except (OSError, ValueError):  # no such group, or its limit is "max"
        return 1 << 62
    cached = stat.get("active_file", 0) + stat.get("inactive_file", 0)
    return max(0, limit - max(0, used - cached))


def installed_memory() -> int:
    """Bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _FALLBACK


def resident_memory() -> int:
    """Bytes of this process that are in memory now; where the system does not say, the most that
    there ever were."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def in_words(n_bytes: int) -> str:
    """A size for people: 1.5 GiB."""
    size = float(n_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
