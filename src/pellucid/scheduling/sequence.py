"""Sequence: one answer in the making, as the scheduler sees it.

WAITING --admitted by plan--> RUNNING --finish--> FINISHED
   `------------------finish------------------------^
"""

from __future__ import annotations

import enum
from collections.abc import Sequence as Tokens

from pellucid.cache import PageTable


class State(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """`tokens` holds the prompt and, after it, what was chosen; the first `computed` of them are
    in the cache. `max_tokens` is how many the answer may have; 0 computes the prompt alone.
    `all_logits` asks for the logits of every position of the prompt, not just its last."""

    def __init__(
        self, id: int, prompt: Tokens[int], max_tokens: int, *, all_logits: bool = False
    ) -> None:
        self.id = id
        self.tokens = list(prompt)
        self.n_prompt = len(self.tokens)
        self.max_tokens = max_tokens
        self.all_logits = all_logits
        self.computed = 0
        self.state = State.WAITING
        self.table: PageTable | None = None

    @property
    def pending(self) -> int:
        """Tokens known but not computed; 1 in decode."""
        return len(self.tokens) - self.computed

    @property
    def max_positions(self) -> int:
        """Positions it may ever need in the cache: the last token chosen is never computed."""
        return self.n_prompt + max(self.max_tokens - 1, 0)
