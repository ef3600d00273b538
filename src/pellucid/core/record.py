"""Records of what a step did to the pages of the KV cache, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PageChanges:
    """What happened to pages between two plans. Pages are listed by number, in order.

    taken: free pages that a sequence owns now. shared: pages of cached or forked positions that
    one more sequence owns. cached: full pages that went into the prefix cache. released: pages that
    lost their last owner; those in the prefix cache stay there, the others are free. evicted: pages
    dropped from the prefix cache, free now. copied: (source, destination). preempted: sequence id
    to the positions that it will have to compute again.
    """

    taken: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    copied: list[tuple[int, int]] = field(default_factory=list)
    preempted: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageCounts:
    """How many pages are free, kept by the prefix cache alone, and owned by sequences."""

    free: int
    cached: int
    owned: int
