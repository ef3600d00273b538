"""Cost: what an operation or a step takes at the least, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic operations, and bytes moved. Costs add up, and multiply by a count."""

    operations: int = 0
    weights_read: int = 0
    kv_read: int = 0
    kv_written: int = 0
    activations_read: int = 0
    activations_written: int = 0

    @property
    def bytes_moved(self) -> int:
        """Of weights, keys and values; activations mostly stay in the processor's caches."""
        return self.weights_read + self.kv_read + self.kv_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.operations + other.operations,
            self.weights_read + other.weights_read,
            self.kv_read + other.kv_read,
            self.kv_written + other.kv_written,
            self.activations_read + other.activations_read,
            self.activations_written + other.activations_written,
        )

    def __mul__(self, count: int) -> Cost:
        return Cost(
            self.operations * count,
            self.weights_read * count,
            self.kv_read * count,
            self.kv_written * count,
            self.activations_read * count,
            self.activations_written * count,
        )
