"""Sequence: one answer in the making, as the scheduler sees it.

          .--------preempted by plan-------.
          v                                |
add --> WAITING --admitted by plan--> RUNNING --finish--> FINISHED
           `-----------------finish--------------------------^
"""

from __future__ import annotations

import enum
from collections.abc import Sequence as Tokens


class State(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """`tokens` holds the prompt and, after it, what was chosen; the first `computed` of them are
    in the cache, on `pages`.

    max_tokens: how many the answer may have; 0 computes the prompt alone. all_logits: the logits
    of every position of the prompt from `first_logit` on are wanted, not just its last's, so
    nothing is taken from the prefix cache; a token follows only from a span that ends with the last
    of `tokens`. priority: lower runs first; equals go by arrival. salt: sequences of different
    salts never share pages. sibling_of: a sequence of the same prompt, added before, from which
    this one takes the prompt's pages when they are computed.

    Raises `ValueError` for a sibling whose prompt, salt or priority is another.
    """

    __slots__ = (
        "all_logits",
        "arrival",
        "cached_tokens",
        "computed",
        "copy",
        "digests",
        "ended_before",
        "first_logit",
        "id",
        "last_led",
        "max_pages",
        "max_tokens",
        "n_preemptions",
        "n_prompt",
        "n_stored",
        "pages",
        "passed",
        "priority",
        "salt",
        "sibling_of",
        "size",
        "state",
        "stores",
        "tokens",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        prompt: Tokens[int],
        max_tokens: int,
        *,
        all_logits: bool = False,
        priority: int = 0,
        salt: bytes = b"",
        sibling_of: Sequence | None = None,
        first_logit: int = 0,
    ) -> None:
        self.id = id
        self.tokens = list(prompt)
        self.n_prompt = len(self.tokens)
        self.max_tokens = max_tokens
        self.all_logits = all_logits
        self.priority = priority
        self.salt = salt
        self.sibling_of = sibling_of
        self.first_logit = first_logit
        if sibling_of is not None and not (
            sibling_of.tokens[: sibling_of.n_prompt] == self.tokens
            and (sibling_of.priority, sibling_of.salt) == (priority, salt)
        ):
            raise ValueError(f"sequence {id} is no sibling of {sibling_of.id}")
        self.state = State.WAITING
        self.computed = 0
        self.pages: tuple[int, ...] = ()
        self.cached_tokens = 0  # positions of the prompt taken, not computed, at first admission
        self.n_preemptions = 0
        # The scheduler's own notes.
        self.arrival = 0  # its number among all that were added
        self.size = 0  # positions to compute, as far as was known when it was queued
        self.max_pages = 0  # that it may ever need
        self.copy: tuple[int, int] | None = None  # a page to copy in its next step
        self.n_stored = 0  # its first pages, which are in the prefix cache
        self.stores = True  # whether more of them can go there
        self.digests: list[bytes] = []  # of its first full pages
        self.last_led = -1  # number of the last plan that gave it enough to be waited for
        self.passed = 0  # pages taken by those that passed while it waited for pages
        self.ended_before = -1  # how many had ended when it was preempted

    @property
    def pending(self) -> int:
        """Tokens known but not computed; 1 in decode."""
        return len(self.tokens) - self.computed

    @property
    def max_positions(self) -> int:
        """Positions it may ever need in the cache: the last token chosen is never computed."""
        return self.n_prompt + max(self.max_tokens - 1, 0)

    @property
    def rank(self) -> tuple[int, int]:
        """Who comes first: by priority, then by arrival."""
        return self.priority, self.arrival
