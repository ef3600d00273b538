"""Plan: what the next step will do, as plain data.

Prefill, decode and checking a draft's guesses are one thing: a span of positions of one
sequence. A plan is a flat ragged batch of spans. The scheduler makes it, the forward pass takes
it as an argument, and nothing in it changes while a step runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Span(NamedTuple):
    """Positions `start` to `start + len(tokens) - 1` of one sequence.

    `pages[i]` is the physical page holding positions i*page_size to (i+1)*page_size - 1 of the
    sequence; it covers every position from 0 to the span's end, and may go beyond. Keys and values
    of the span's own positions are written to their pages during the step; earlier ones are read
    from theirs. Logits are wanted for the last `n_logits` positions of the span.
    """

    # A named tuple because a step makes hundreds: it is built in half of a frozen dataclass' time.
    sequence: int
    start: int
    tokens: tuple[int, ...]
    pages: tuple[int, ...]
    n_logits: int = 0

    @property
    def end(self) -> int:
        """One past the last position computed."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Plan:
    """`copies` are (source page, destination page): whole pages, copied in this order before the
    step writes anything of its own. `room` maps sequences to how many positions after their last
    token they have pages for, and the step tokens: room for a draft."""

    spans: tuple[Span, ...]
    page_size: int
    copies: tuple[tuple[int, int], ...] = ()
    room: Mapping[int, int] = field(default_factory=dict)

    def with_drafts(self, drafts: Mapping[int, tuple[int, ...]]) -> Plan:
        """The same plan with guesses to check: after the last token of each sequence in `drafts`
        its guesses, no more than it has room for. Logits are wanted for them all."""
        spans = [
            Span(x.sequence, x.start, x.tokens + draft, x.pages, x.n_logits + len(draft))
            if (draft := drafts.get(x.sequence))
            else x
            for x in self.spans
        ]
        return replace(self, spans=tuple(spans))

    @property
    def n_tokens(self) -> int:
        return sum(len(span.tokens) for span in self.spans)

    @property
    def n_logits(self) -> int:
        return sum(span.n_logits for span in self.spans)
