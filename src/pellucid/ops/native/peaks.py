"""The machine's peaks: what it reads and computes at best, measured beside what is compared."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid import _native

_READ_PASSES = 4
_ARITHMETIC_PASSES = 3
_ROUNDS = 4000  # about a millisecond on a fast core


@dataclass(frozen=True, slots=True)
class Peaks:
    """With all threads together: bytes a second read from a buffer as large as the weights, and
    operations a second on 8-bit integers and on float32, a multiply and an add being two."""

    read: float
    int8: float
    f32: float

    def to_json(self) -> dict[str, float]:
        return {
            "read_bytes_per_second": self.read,
            "int8_operations_per_second": self.int8,
            "f32_operations_per_second": self.f32,
        }


class Probe:
    """Measures the peaks of `threads` threads; the best of a few passes each."""

    def __init__(self, threads: int, nbytes: int) -> None:
        self._pool = _native.program.Pool(threads)
        self._nbytes = nbytes

    def measure(self) -> Peaks:
        peaks = _native.peaks
        return Peaks(
            max(peaks.reads(self._pool, self._nbytes, _READ_PASSES)),
            max(peaks.int8(self._pool, _ROUNDS, _ARITHMETIC_PASSES)),
            max(peaks.f32(self._pool, _ROUNDS, _ARITHMETIC_PASSES)),
        )
