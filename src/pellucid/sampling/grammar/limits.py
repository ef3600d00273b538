"""What a grammar may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLParserLimits

# The stack on which a grammar is tried is far smaller than those it is then compiled and followed
# on, so that what fits the first fits the others. (Addresses, not memory: pages come when touched.)
TRIAL_STACK = 2 << 20
DEEP_STACK = 64 << 20


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """seconds, memory (bytes beyond the vocabulary's): of the trial of one grammar. processes: that
    try grammars at once. cached: grammars kept, the refused among them. cached_chars: of their
    texts together."""

    seconds: float = 10.0
    memory: int = 1 << 30
    processes: int = 2
    cached: int = 256
    cached_chars: int = 16 << 20


def parser_limits() -> LLParserLimits:
    """llguidance's own limits: deterministic, so that the same grammar and tokens end the same way.

    Fuel and items bound one mask to a few tens of milliseconds (14,000 units and 20,000 items a
    millisecond); lexer states bound the memory of one answer (1 to 2 kB each).
    """
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_items_in_row=2_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=200_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )
