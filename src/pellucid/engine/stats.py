"""EngineStats: an engine's state in numbers, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

STEP_SIZES: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Positions of a step, by which steps are counted: up to so many, and one place for more."""

RESIDENCY_SECONDS: Final = (
    0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0,
    3600.0, 7200.0, 21600.0, 86400.0,
)  # fmt: skip
"""By which times of pages are counted, as steps are by `STEP_SIZES`."""


class Durations(NamedTuple):
    """Times counted by `RESIDENCY_SECONDS`, and their sum; no counts where none were made."""

    counts: tuple[int, ...] = ()
    seconds: float = 0.0


_NONE: Final = Durations()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What there is at the moment, and what was counted since the engine began.

    Pages are free, kept by the prefix cache alone, or owned by sequences. prefix_queries counts the
    tokens of prompts that were looked up in the prefix cache, prefix_hits those found there.
    requests_ended counts requests, not answers; a step that failed counts nowhere. Of speculation:
    drafts checked, the tokens guessed in them, those accepted, both also by place in the draft;
    seconds that drafting took, and seconds won, as estimated: what the same tokens would have taken
    without drafts, less what they took. step_sizes: steps by the positions that they computed, see
    `STEP_SIZES`. Of pages in the prefix cache: page_lifetimes from when they were taken to their
    eviction, page_idle from their last use (taken, or shared with another sequence) to it,
    page_reuse_gaps from one sharing to the next.
    """

    running_sequences: int
    waiting_sequences: int
    pages_free: int
    pages_cached: int
    pages_owned: int
    prefix_queries: int
    prefix_hits: int
    steps: int
    positions_computed: int
    tokens_generated: int
    requests_ended: int
    preemptions: int
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    guessed_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    draft_seconds: float = 0.0
    seconds_won: float = 0.0
    step_sizes: tuple[int, ...] = ()
    page_lifetimes: Durations = _NONE
    page_idle: Durations = _NONE
    page_reuse_gaps: Durations = _NONE
