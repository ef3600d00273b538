"""What else runs on a machine that is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Others:
    """Cores' worth of processor time that is not ours, since it was made or last asked: a machine
    that others use gives other times from one minute to the next."""

    def __init__(self) -> None:
        self._before = self._now()

    def cores(self) -> float:
        before, self._before = self._before, self._now()
        passed, busy, own = (b - a for a, b in zip(before, self._before, strict=True))
        return max(0.0, (busy - own) / passed)

    def _now(self) -> tuple[float, float, float]:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        ticks = os.sysconf("SC_CLK_TCK")
        idle = fields[3] + fields[4]
        return time.monotonic(), (sum(fields) - idle) / ticks, self._own()

    def _own(self) -> float:
        """Of this process and all below it, those that have ended included."""
        found, ticks = 0, os.sysconf("SC_CLK_TCK")
        waiting = [os.getpid()]
        while waiting:
            pid = waiting.pop()
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                for task in Path(f"/proc/{pid}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())
            except OSError:
                continue
            found += sum(int(x) for x in stat[11:15])
        return found / ticks
