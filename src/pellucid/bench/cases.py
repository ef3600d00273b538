"""Cases: what is measured, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pellucid.core.errors import BadInput
from pellucid.core.plan import Plan, Span
from pellucid.core.spec import ModelSpec
from pellucid.costs import pages_for

PAGE_SIZE = 16
CHUNK = 512  # positions of one step of prefill, as the engine's default
SHORT_CONTEXT = 32
# What is measured if nothing else is asked for.
PREFILL = (512,)
BATCHES = (1, 8, 32)
CONTEXTS = (1024, 4096)


@dataclass(frozen=True, slots=True)
class Case:
    """prefill: `tokens` positions of one sequence from position 0, in chunks.
    decode: `tokens` steps of one token for each of `sequences`, from position `context`."""

    kind: Literal["prefill", "decode"]
    tokens: int
    sequences: int = 1
    context: int = 0

    @property
    def name(self) -> str:
        if self.kind == "prefill":
            return f"prefill {self.tokens}"
        return f"decode {self.sequences}, context {self.context}"

    @property
    def positions(self) -> int:
        """Positions of each sequence at the end."""
        return self.context + self.tokens

    @property
    def n_pages(self) -> int:
        return self.sequences * pages_for(self.positions, PAGE_SIZE)

    @property
    def total_tokens(self) -> int:
        return self.sequences * self.tokens

    def preparation(self, vocab_size: int) -> Iterator[Plan]:
        """The steps that fill the cache up to where the case begins."""
        for sequence in range(self.sequences):
            yield from self._chunks(sequence, self.context, vocab_size, n_logits=0)

    def plans(self, vocab_size: int) -> Iterator[Plan]:
        """The steps that are measured."""
        if self.kind == "prefill":
            yield from self._chunks(0, self.tokens, vocab_size, n_logits=1)
            return
        for position in range(self.context, self.positions):
            spans = (
                self._span(sequence, position, 1, vocab_size, n_logits=1)
                for sequence in range(self.sequences)
            )
            yield Plan(tuple(spans), PAGE_SIZE)

    def _chunks(self, sequence: int, end: int, vocab_size: int, n_logits: int) -> Iterator[Plan]:
        """Positions 0 to end - 1; only the last chunk asks for logits."""
        for start in range(0, end, CHUNK):
            length = min(CHUNK, end - start)
            wanted = n_logits if start + length == end else 0
            yield Plan((self._span(sequence, start, length, vocab_size, wanted),), PAGE_SIZE)

    def _span(self, sequence: int, start: int, length: int, vocab_size: int, n_logits: int) -> Span:
        each = pages_for(self.positions, PAGE_SIZE)
        pages = tuple(range(sequence * each, (sequence + 1) * each))
        return Span(sequence, start, tokens(sequence, start, length, vocab_size), pages, n_logits)


def tokens(sequence: int, start: int, length: int, vocab_size: int) -> tuple[int, ...]:
    """Token ids that differ by sequence and position; which they are does not change the work."""
    return tuple(
        (7 + 7919 * (position + 1) + 104729 * sequence) % vocab_size
        for position in range(start, start + length)
    )


def sweep(
    spec: ModelSpec,
    decode: int,
    prefill: Sequence[int] | None,
    batches: Sequence[int],
    contexts: Sequence[int] | None,
) -> list[Case]:
    """Each prompt length; `decode` steps of each batch at a short context, and of one sequence at
    each context. None are the usual ones, as far as the model's context reaches.

    Raises `BadInput` when there is nothing to measure, or for a case longer than that context.
    """
    cases = [
        *_usual_or(prefill, PREFILL, spec, lambda length: Case("prefill", length)),
        *(Case("decode", decode, batch, SHORT_CONTEXT) for batch in batches),
        *_usual_or(contexts, CONTEXTS, spec, lambda context: Case("decode", decode, 1, context)),
    ]
    if not cases:
        raise BadInput("there is nothing to measure: ask for a prompt length, batch or context")
    for case in cases:
        if not _fits(case, spec):
            raise BadInput(
                f"{case.name}: it takes {case.positions} positions and the model was made for "
                f"{spec.context_length}: measure a shorter one"
            )
    return cases


def _usual_or(
    asked: Sequence[int] | None,
    usual: Sequence[int],
    spec: ModelSpec,
    case: Callable[[int], Case],
) -> list[Case]:
    if asked is not None:
        return [case(number) for number in asked]
    return [fitting for fitting in map(case, usual) if _fits(fitting, spec)]


def _fits(case: Case, spec: ModelSpec) -> bool:
    return case.positions <= spec.context_length
