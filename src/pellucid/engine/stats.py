"""EngineStats: an engine's state in numbers, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What there is at the moment, and what was counted since the engine began.

    requests_ended counts requests, not answers; steps that failed are not counted.
    """

    running_sequences: int
    waiting_sequences: int
    pages: int
    pages_free: int
    steps: int
    positions_computed: int
    tokens_generated: int
    requests_ended: int
