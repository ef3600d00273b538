"""Pair merging as BPE applies it: the best pair first, of equals the leftmost, until none is left.

The readable form of what the `tokenizers` library does in Rust. It shows the merges step by step
(`pellucid tokenize --merges`), and encodes the vocabularies whose order no list of merges can
express (SentencePiece pieces of equal score).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

Priority = Callable[[str, str], float | None]
"""Of two neighbours: lower merges earlier, None never."""


@dataclass(frozen=True, slots=True)
class Merge:
    """`left` and `right` became one. `position` is where `left` begins, among the symbols given;
    `priority` is what put it next: a rank, or a negated score."""

    left: str
    right: str
    priority: float
    position: int


def merge_symbols(
    symbols: list[str], priority: Priority, trace: list[Merge] | None = None
) -> list[str]:
    """Merges until no pair has a priority. O(n log n); each merge is appended to `trace`."""
    texts = list(symbols)
    following = [*range(1, len(texts)), -1]
    preceding = list(range(-1, len(texts) - 1))
    queue: list[tuple[float, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right >= 0:
            found = priority(texts[left], texts[right])
            if found is not None:
                heapq.heappush(queue, (found, left, right, texts[left] + texts[right]))

    for left in range(len(texts) - 1):
        offer(left, left + 1)
    while queue:
        found, left, right, merged = heapq.heappop(queue)
        if not texts[left] or not texts[right] or texts[left] + texts[right] != merged:
            continue  # one of them has been merged since
        if trace is not None:
            trace.append(Merge(texts[left], texts[right], found, left))
        texts[left], texts[right] = merged, ""
        following[left] = following[right]
        if following[right] >= 0:
            preceding[following[right]] = left
        offer(preceding[left], left)
        offer(left, following[left])
    return [text for text in texts if text]
