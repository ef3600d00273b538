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


def _content(span: Span, sequence: Sequence, position: int) -> Slot:
    """What belongs into a slot; of a draft's own positions the span knows the tokens."""
    tokens = (*sequence.tokens[: span.start], *span.tokens)
    return sequence.salt, tokens[: position + 1]


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
    ) -> dict[int, tuple[int, ...]]:
        """The tokens that follow each span that ends with logits: of its draft what is right, and
        one more. Only the first `n_spans` are computed if the step is cut off."""
        for source, destination in plan.copies:
            self.slots[destination] = list(self.slots[source])
        spans = plan.spans[:n_spans]
        for span in spans:
            self._write(span, sequences[span.sequence])
        for span in spans:
            self._read(span, sequences[span.sequence])
        return {
            span.sequence: self._follow(span, plan, seed(span.sequence))
            for span in spans
            if span.n_logits
        }

    def _follow(self, span: Span, plan: Plan, seed: int) -> tuple[int, ...]:
        n_drafted = span.n_logits - 1 if span.sequence in plan.room else 0
        draft = span.tokens[len(span.tokens) - n_drafted :]
        chosen: list[int] = []
        for position in range(span.end - 1 - n_drafted, span.end):
            slot = self._slot(span, position)
            assert slot is not None
            chosen.append(next_token(slot, seed))
            if chosen[-1:] != list(draft[len(chosen) - 1 : len(chosen)]):
                break
        return tuple(chosen)

    def _write(self, span: Span, sequence: Sequence) -> None:
        for position in range(span.start, span.end):
            page = self.slots[span.pages[position // self.page_size]]
            page[position % self.page_size] = _content(span, sequence, position)

    def _read(self, span: Span, sequence: Sequence) -> None:
        for position in range(span.end):
            content = _content(span, sequence, position)
            found = self._slot(span, position)
            assert found == content, f"sequence {span.sequence} finds {found} at {position}"

    def _slot(self, span: Span, position: int) -> Slot | None:
        return self.slots[span.pages[position // self.page_size]][position % self.page_size]
