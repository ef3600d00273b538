"""Wanted: how many replicas there are to be, and where."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.errors import BadInput
from pellucid.distributed.placement import POLICIES


@dataclass(frozen=True, slots=True)
class Wanted:
    """least, most: replicas. address: of a Ray cluster, None for one of our own. requests: that one
    replica is given at once at the most; target: about so many each, where the number may change.
    In seconds: for a replica to take a request, for a step, for what runs when a replica ends;
    without a sign of life from one that was asked; until more load means more replicas, and less
    load fewer."""

    least: int
    most: int
    address: str | None = None
    policy: str = "prefix"
    requests: int = 4096
    target: float = 24.0
    start_wait_s: float = 15.0
    hang_s: float = 300.0
    drain_s: float = 30.0
    silence_s: float = 10.0
    up_s: float = 5.0
    down_s: float = 120.0

    def check(self) -> None:
        """Raises `BadInput` for numbers that contradict each other."""
        if self.least < 1 or self.most < self.least:
            raise BadInput(
                f"from {self.least} to {self.most} replicas: there is to be one at least, and "
                "max_replicas is not to be below min_replicas"
            )
        if self.policy not in POLICIES:
            raise BadInput(f"routing must be one of {', '.join(POLICIES)}, not {self.policy!r}")
