"""Grammar and Matcher: which tokens may come next.

A mask is a row of bits, uint32 [ceil(vocabulary / 32)], token t at bit t % 32 of word t // 32. An
end token's bit is set exactly where the text so far is complete; no other control token's ever is.

A matcher's states, and who moves it:

    open --accept--> open | finished | failed      finished: nothing but an end may follow
    any  --rollback--> open                        failed: a limit was reached; mask() raises

Between `accept` and `mask` the mask is computed on another thread, with the GIL released, unless
`allows` is to be asked instead, which costs a hundredth. Each answer's matcher is a copy of its own
down to the automata: what one costs depends on no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput
from pellucid.sampling.grammar.trial import reason_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

Mask = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class TokenSets:
    """Bits as in a mask: the tokens that stand for text, and those that end an answer."""

    text: Mask
    ends: Mask


class Grammar:
    """A compiled grammar. Immutable, and safe to share between threads."""

    def __init__(self, pristine: LLMatcher, sets: TokenSets, threads: Executor) -> None:
        self._pristine = pristine
        self._sets = sets
        self._threads = threads
        self._first = _compute(pristine, sets)

    def start(self) -> Matcher:
        """A matcher before its first token."""
        return Matcher(self._pristine.deep_copy(), self._sets, self._threads, self._first)


class Matcher:
    """The grammar's state in one answer. Not for several threads at once."""

    def __init__(self, matcher: LLMatcher, sets: TokenSets, threads: Executor, first: Mask) -> None:
        self._matcher = matcher
        self._sets = sets
        self._threads = threads
        self._mask: Mask | None = first
        self._pending: Future[Mask] | None = None
        self._n_tokens = 0
        self._finished = False
        self._forced: bytes | None = None  # nobody has asked

    @property
    def finished(self) -> bool:
        """Whether the text is complete and nothing can be added to it."""
        return self._finished

    def mask(self, may_end: bool = True) -> Mask:
        """The tokens allowed next, read-only. At least one is.

        `may_end` False leaves the end tokens out where the text could go on. Waits for the mask
        if it is still being computed. Raises `BadInput` when a limit was reached on the way, or
        no token of the vocabulary spells what has to follow.
        """
        self._settle()
        if self._mask is None:
            self._mask = _compute(self._matcher, self._sets)
        if may_end:
            return self._mask
        going_on = self._mask & ~self._sets.ends
        return going_on if going_on.any() else self._mask

    def allows(self, token: int, may_end: bool = True) -> bool:
        """Whether `mask(may_end)` has the token's bit; the mask is computed only for an end that
        may not come where text can follow. Where a limit was reached it is False."""
        self._settle()
        if self._mask is not None:
            return bool(self.mask(may_end)[token // 32] >> (token % 32) & 1)
        if self._matcher.is_error() or self._matcher.is_stopped():
            return False
        word, bit = token // 32, token % 32
        if self._sets.ends[word] >> bit & 1:
            if not self._matcher.is_accepting():
                return False
            return may_end or self._must_end(token)
        text = bool(self._sets.text[word] >> bit & 1)
        return text and self._matcher.validate_tokens([token]) == 1

    def _must_end(self, end: int) -> bool:
        """Whether an end is allowed where only that may follow."""
        try:
            return bool(self.mask(may_end=False)[end // 32] >> (end % 32) & 1)
        except BadInput:
            return False

    def accept(self, token: int, *, ahead: bool = True) -> None:
        """`token` came next; the next mask is begun if it is to be computed `ahead`.

        An end token is taken where the text is complete. Raises `BadInput` when the grammar does
        not allow the token here, or a limit was reached.
        """
        self._settle()
        if self._finished:
            raise BadInput(f"structured_outputs: the answer was complete before token {token}")
        self._mask = None
        if not self._matcher.consume_token(token):
            raise _failure(self._matcher)
        self._n_tokens += 1
        self._finished = self._matcher.is_stopped()
        if self._forced is not None:
            self._forced = self._look_ahead()
        if ahead and not self._finished:
            self.begin()

    def begin(self) -> None:
        """`mask` will be asked for: it is computed on another thread, if it is not there."""
        if self._mask is None and self._pending is None:
            with contextlib.suppress(RuntimeError):  # threads that are gone: `mask` does it itself
                self._pending = self._threads.submit(_compute, self._matcher, self._sets)

    def possible(self, tokens: Sequence[int]) -> int:
        """How many of `tokens`, one after the other, could come next; 0 if it cannot be known."""
        self._settle()
        if self._finished or self._matcher.is_error():
            return 0
        return int(self._matcher.validate_tokens(list(tokens)))

    def forced(self) -> bytes:
        """What the text has to go on with, as far as there is no choice. Asked once, it is worked
        out with each token from then on, before another thread has the matcher for a mask."""
        if self._forced is None:
            self._settle()
            self._forced = self._look_ahead()
        return self._forced

    def _look_ahead(self) -> bytes:
        """About 10 us."""
        if self._finished or self._matcher.is_error():
            return b""
        return bytes(self._matcher.compute_ff_bytes())

    def rollback(self, n: int) -> None:
        """The last `n` tokens never came. Raises ValueError for more than there were."""
        if not 0 <= n <= self._n_tokens:
            raise ValueError(f"{n} tokens cannot be taken back of {self._n_tokens}")
        self._settle()
        if n == 0:
            return
        self._mask = None
        if not self._matcher.rollback(n):
            raise _failure(self._matcher)
        self._n_tokens -= n
        self._finished = False
        self._forced = None

    def _settle(self) -> None:
        """Take what the other thread computed. Its failure, if one, is the matcher's state, which
        `mask` reports when asked."""
        pending = self._pending
        if pending is None:
            return
        failure = pending.exception()  # until then, the other thread has the matcher
        self._pending = None
        if failure is None:
            self._mask = pending.result()


def _compute(matcher: LLMatcher, sets: TokenSets) -> Mask:
    """Raises `BadInput` when the matcher failed, or fails at this."""
    if matcher.is_stopped():
        if matcher.is_error():
            raise _failure(matcher)
        return sets.ends
    bits = np.frombuffer(matcher.compute_bitmask(), "<u4")
    if matcher.is_error():
        raise _failure(matcher)
    mask = np.zeros_like(sets.text)
    shared = min(len(bits), len(mask))
    mask[:shared] = bits[:shared]
    mask &= sets.text
    if matcher.is_accepting():
        mask |= sets.ends
    if not mask.any():
        raise _failure(matcher)
    mask.flags.writeable = False
    return mask


def _failure(matcher: LLMatcher) -> BadInput:
    reason = reason_of(matcher) or "no token of the vocabulary can follow"
    return BadInput(f"structured_outputs: the grammar cannot be followed further: {reason}")
