"""The machine's peaks for whoever serves, kept with what they depend on.

A machine that is busy while it is measured looks slower than it is. So it is measured again after
a while, and the best counts, each figure by itself. Not the best ever: a virtual machine's hours
differ. By how much an earlier best is above what is seen now counts the less the longer ago that
was: half in `_HALF_LIFE_S`, so that a roof sinks slowly to where the machine is, and never falls.
What a benchmark measures by the same routine counts too.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pellucid import __version__
from pellucid.core.record import MachineRecord
from pellucid.hub.places import home, write_atomically

if TYPE_CHECKING:
    from pellucid.ops.native.peaks import Peaks

logger = logging.getLogger("pellucid")

# Where nothing else is asked for: beyond most processors' caches, and read in a fraction of a
# second.
_READ_BYTES: Final = 128 << 20
# As large as a model's weights, between these: less is no memory, more reads no slower.
_FEWEST: Final = 64 << 20
_MOST: Final = 256 << 20
_FRESH_SECONDS: Final = 300
# Of what an earlier best is above a later measurement; and after so many of these it is gone.
_HALF_LIFE_S: Final = 6 * 3600.0
_LIVES: Final = 8
_PEAKS: Final = (
    "read_bytes_per_second",
    "int8_operations_per_second",
    "f32_operations_per_second",
)
# Apart in time: on a busy machine one of them may be undisturbed.
_ROUNDS: Final = 2


def machine_peaks(
    threads: int, kept_in: Path | None = None, weights: int | None = None
) -> MachineRecord:
    """What `threads` threads read and compute at best here, measured in less than a second unless
    it was minutes ago: reading as many bytes as a model has of `weights`, since caches of hundreds
    of megabytes hold a part of them. Kept are the best figures, as the module says, of the same
    version on a processor of the same name, in the folder `kept_in`; None is Pellucid's own."""
    path, n_bytes = _path(kept_in), _bytes_for(weights)
    found = _record(_read(path).get(_key(threads, n_bytes)))
    if found is not None and 0 <= time.time() - found.measured_at < _FRESH_SECONDS:
        return found
    return _keep(_measure(threads, n_bytes), n_bytes, path)


def _bytes_for(weights: int | None) -> int:
    return _READ_BYTES if weights is None else min(max(weights, _FEWEST), _MOST)


def remember_peaks(
    threads: int, peaks: Peaks, n_bytes: int, seconds: float, kept_in: Path | None = None
) -> None:
    """Peaks that were measured now, in so many seconds, reading `n_bytes` of weights at a time:
    what fits into nearer caches says nothing of memory and is not kept."""
    if n_bytes >= _FEWEST:
        found = _record_of(threads, [peaks], seconds)
        _keep(found, _bytes_for(n_bytes), _path(kept_in))


def _path(kept_in: Path | None) -> Path:
    return (home() if kept_in is None else kept_in) / "machine.json"


def _keep(now: MachineRecord, n_bytes: int, path: Path) -> MachineRecord:
    """The best of it and of what was known, which is known from now on."""
    known, key = _read(path), _key(now.threads, n_bytes)
    found = _best(now, _record(known.get(key)))
    known[key] = asdict(found)
    try:
        write_atomically(path, json.dumps(known, indent=1) + "\n")
    except OSError as error:
        logger.info("the machine's peaks are not kept: %s", error)
    return found


def _best(now: MachineRecord, before: MachineRecord | None) -> MachineRecord:
    """What `now` saw, and above it what is still believed of `before`."""
    if before is None or now.measured_at < before.measured_at:  # a clock that was set back
        return now
    age = (now.measured_at - before.measured_at) / _HALF_LIFE_S
    if age >= _LIVES:
        return now
    kept = 0.5**age
    peaks = {name: getattr(now, name) for name in _PEAKS}
    above = {name: max(0.0, getattr(before, name) - seen) for name, seen in peaks.items()}
    if not any(above.values()):
        return now
    best = {name: seen + kept * above[name] for name, seen in peaks.items()}
    since = max(before.best_since, now.measured_at - _LIVES * _HALF_LIFE_S)
    return replace(now, best_since=since, **best)


def _record(kept: dict[str, Any] | None) -> MachineRecord | None:
    """None for what another version or somebody's editor wrote: it is measured again."""
    fields = MachineRecord.__dataclass_fields__
    if kept is None or kept.keys() != fields.keys():
        return None
    if not all(isinstance(value, int | float) for value in kept.values()):
        return None
    return MachineRecord(**kept)


def _measure(threads: int, n_bytes: int) -> MachineRecord:
    from pellucid.ops.native.peaks import Probe

    began = time.perf_counter()
    probe = Probe(threads, n_bytes)
    seen = [probe.measure() for _ in range(_ROUNDS)]
    return _record_of(threads, seen, time.perf_counter() - began)


def _record_of(threads: int, seen: Sequence[Peaks], seconds: float) -> MachineRecord:
    now = time.time()
    return MachineRecord(
        read_bytes_per_second=max(peaks.read for peaks in seen),
        int8_operations_per_second=max(peaks.int8 for peaks in seen),
        f32_operations_per_second=max(peaks.f32 for peaks in seen),
        threads=threads,
        measured_at=now,
        measured_in_s=round(seconds, 3),
        best_since=now,
    )


def _key(threads: int, n_bytes: int) -> str:
    from pellucid import _native

    size = f"{-(-n_bytes >> 20)} MiB"
    simd = str(_native.matmul.chosen())
    return " / ".join((__version__, processor_name(), f"{threads} threads", simd, size))


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
