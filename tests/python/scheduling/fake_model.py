"""A model whose keys and values are what they stand for, so that a wrong page shows.

What a position's key and value depend on is every token up to it, so that is what is written to
its slot. A span that reads its pages must find its own sequence's past there, and nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

from pellucid.core.plan import Plan, Span
from pellucid.scheduling import Sequence

Slot = tuple[bytes, tuple[int, ...]]  # salt, tokens up to here


def next_token(slot: Slot, seed: int) -> int:
    """What follows, from what was read and who asks."""
    return zlib.crc32(repr((slot[1], seed)).encode()) % 3


def answer_alone(sequence: Sequence, seed: int, length: int) -> list[int]:
    """The tokens of `sequence` had nothing else ever run."""
    tokens = sequence.tokens[: sequence.n_prompt]
    for _ in range(length):
        tokens.append(next_token((sequence.salt, tuple(tokens)), seed))
    return tokens


class FakeModel:
    """Pages of slots, and the rules of a step: copies, then writes, then reads."""

    def __init__(self, n_pages: int, page_size: int) -> None:
        self.slots: list[list[Slot | None]] = [[None] * page_size for _ in range(n_pages)]
        self.page_size = page_size

    def run(
        self,
        plan: Plan,
        sequences: Mapping[int, Sequence],
        seed: Callable[[int], int],
        n_spans: int | None = None,
    ) -> dict[int, int]:
        """The token that follows each span that ends with logits; only the first `n_spans` are
        computed if the step is cut off."""
        for source, destination in plan.copies:
            self.slots[destination] = list(self.slots[source])
        spans = plan.spans[:n_spans]
        for span in spans:
            self._write(span, sequences[span.sequence])
        for span in spans:
            self._read(span, sequences[span.sequence])
        last = {span.sequence: self._slot(span, span.end - 1) for span in spans if span.n_logits}
        return {i: next_token(slot, seed(i)) for i, slot in last.items() if slot is not None}

    def _write(self, span: Span, sequence: Sequence) -> None:
        for position in range(span.start, span.end):
            page = self.slots[span.pages[position // self.page_size]]
            content = sequence.salt, tuple(sequence.tokens[: position + 1])
            page[position % self.page_size] = content

    def _read(self, span: Span, sequence: Sequence) -> None:
        for position in range(span.end):
            content = sequence.salt, tuple(sequence.tokens[: position + 1])
            found = self._slot(span, position)
            assert found == content, f"sequence {span.sequence} finds {found} at {position}"

    def _slot(self, span: Span, position: int) -> Slot | None:
        return self.slots[span.pages[position // self.page_size]][position % self.page_size]
