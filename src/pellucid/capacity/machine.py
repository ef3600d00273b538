"""The machine of a plan: this one, as it was measured, or one of the table by its peaks."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Literal

from pellucid.capacity.kept import Kept, find, key_of
from pellucid.capacity.subject import Subject
from pellucid.core.errors import BadInput
from pellucid.costs import NATIVE_LANES, kv_bytes_per_token
from pellucid.costs.hardware import Hardware, find_hardware, table
from pellucid.costs.roofline import Limits
from pellucid.engine.machine import machine_peaks, processor_name
from pellucid.engine.memory import available_memory
from pellucid.simulate.pace import Pace
from pellucid.simulate.setup import Path
from pellucid.simulate.times import Fitted, Roofline, StepTime

HERE = "here"
_MEMORY_SHARE = (
    0.9  # of a chip's memory that an engine takes; the rest is the driver's and buffers'
)
# What kernels reach of a chip's peaks, and a step takes beside them: assumptions, to be replaced
# by the user's own. Decode of well-made engines reads at 60 to 80 % of the bandwidth.
BANDWIDTH, ARITHMETIC, FIXED = 0.7, 0.5, 0.001

Known = Literal["calibrated", "peaks measured here", "peaks by its maker"]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the peaks that kernels reach, and a step's fixed seconds."""

    bandwidth: float = BANDWIDTH
    arithmetic: float = ARITHMETIC
    fixed: float = FIXED

    def __post_init__(self) -> None:
        for name in ("bandwidth", "arithmetic"):
            if not 0 < getattr(self, name) <= 1:
                raise BadInput(f"--efficiency: the share of the {name} must be above 0, to 1")
        if not 0 <= self.fixed <= 10:
            raise BadInput("--efficiency: a step's fixed time must be from 0 to 10 s")


@dataclass(frozen=True, slots=True)
class Machine:
    """memory: bytes for weights, keys and values. per_hour: US dollars, None where nobody said;
    `priced_by` says who did. kept: the calibration, where there is one; row: of the table."""

    name: str
    what: str
    memory: int
    per_hour: float | None
    priced_by: str
    known: Known
    limits: Limits
    efficiency: Efficiency
    lanes: int
    kept: Kept | None = None
    row: Hardware | None = None

    def for_bits(self, bits: float) -> Machine:
        """Its limits for weights of so many bits."""
        return self if self.row is None else replace(self, limits=self.row.limits(bits))

    def times(self, subject: Subject) -> StepTime:
        """The cost model of a model on it. A calibration is of one model and weight type: it is
        used where these are the subject's, with its keys and values scaled."""
        if self.kept is not None:
            return self.kept.calibration.times(subject.spec)
        e = self.efficiency
        return Roofline(subject.priced, self.limits, e.bandwidth, e.arithmetic, e.fixed)

    @property
    def path(self) -> Path:
        return Path() if self.kept is None else self.kept.calibration.path

    @property
    def pace(self) -> Pace:
        return Pace() if self.kept is None else self.kept.calibration.pace


def with_kv(times: StepTime, subject: Subject, kv_dtype: str) -> StepTime:
    """The cost model with another type of keys and values than the subject's."""
    other = subject.with_kv(kv_dtype)
    if isinstance(times, Roofline):
        return Roofline(other.priced, times.limits, times.bandwidth, times.arithmetic, times.fixed)
    assert isinstance(times, Fitted)
    each = [
        kv_bytes_per_token(one.spec, one.priced.kv_dtype, one.priced.kv_lanes)
        for one in (subject, other)
    ]
    return times.with_kv(each[1] / each[0])


def lanes_of(hardware: str | None) -> int:
    """Features that a value head is rounded up to."""
    return NATIVE_LANES if hardware in (None, HERE) else 1


def find_machine(
    hardware: str | None,
    subject: Subject,
    threads: int | None,
    per_hour: float | None,
    efficiency: Efficiency,
) -> Machine:
    """`hardware` None or "here" is this machine. Raises `BadInput` for a name that there is not."""
    if per_hour is not None and not 0 <= per_hour <= 1e6:
        raise BadInput(f"--price {per_hour:g}: dollars an hour must be from 0 to 1e6")
    if hardware in (None, HERE):
        return _this_one(subject, threads, per_hour, efficiency)
    assert hardware is not None
    return _of_table(find_hardware(hardware), subject, per_hour, efficiency)


def threads_of(threads: int | None) -> int:
    """All cores unless said."""
    return threads or len(os.sched_getaffinity(0))


def calibration_key(subject: Subject, threads: int | None) -> str:
    """What a calibration of the subject here is kept under."""
    return key_of(
        processor_name(),
        threads_of(threads),
        subject.spec,
        subject.weight_bytes,
        subject.priced.kv_dtype,
    )


def _this_one(
    subject: Subject, threads: int | None, per_hour: float | None, efficiency: Efficiency
) -> Machine:
    n_threads = threads_of(threads)
    kept = find(calibration_key(subject, threads))
    peaks = machine_peaks(n_threads)
    limits = Limits(
        processor_name(),
        peaks.read_bytes_per_second,
        peaks.int8_operations_per_second
        if subject.priced.matrix_bits <= 9
        else peaks.f32_operations_per_second,
        "int8" if subject.priced.matrix_bits <= 9 else "f32",
        "measured",
    )
    return Machine(
        HERE,
        f"{processor_name()}, {n_threads} threads",
        available_memory(),
        per_hour,
        "the user",
        "peaks measured here" if kept is None else "calibrated",
        limits,
        efficiency,
        NATIVE_LANES,
        kept,
    )


def _of_table(
    row: Hardware, subject: Subject, per_hour: float | None, efficiency: Efficiency
) -> Machine:
    if row.memory is None:
        raise BadInput(f"--hardware {row.name}: say its memory too, as in {row.name},80GB")
    priced_by = "the user"
    if per_hour is None and row.price is not None:
        per_hour = row.price.usd_per_hour
        priced_by = f"{row.price.source}, {row.price.date}"
    return Machine(
        row.name,
        row.what,
        int(_MEMORY_SHARE * row.memory),
        per_hour,
        priced_by,
        "peaks by its maker",
        row.limits(subject.priced.matrix_bits),
        efficiency,
        1,
        row=row,
    )


def roomy_machines(n_bytes: int) -> list[str]:
    """Rows of the table that hold so much, the smallest first."""
    rows = sorted(table(), key=lambda row: row.memory or 0)
    return [row.name for row in rows if row.memory and _MEMORY_SHARE * row.memory >= n_bytes]


def age_in_words(made_at: float) -> str:
    """How long ago something was made."""
    hours = max(0.0, time.time() - made_at) / 3600
    if hours < 1:
        return "within the hour"
    return f"{hours:.0f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"
