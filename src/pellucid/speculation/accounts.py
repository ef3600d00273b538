"""Accounts: what guessing has cost each sequence beside plain decoding, and what it may still cost.

A draft is made only if the sequence's account covers it with no guess right. So whatever becomes
of its guesses, an answer takes at most what plain decoding would have taken, a share of that and a
small allowance more: regret is bounded by construction, as far as the times of steps that are
believed are the true ones. What guessing wins may be spent on guessing again.

The unit is the time that a token takes without drafts: a step's, over the sequences that decode in
it. So nothing changes where all steps take longer for a while.
"""

from __future__ import annotations

from typing import Final

# Of an answer's own time, what may be lost; and what it may lose before it has taken any. An answer
# of 70 tokens is so at most 3 % slower.
SHARE: Final = 0.01
ALLOWANCE: Final = 1.4
# What all answers together may lose first, for what has to be done before a first guess: a draft
# model reads the prompt. The same share of all time is added, and what was won, up to a limit.
_BANK: Final = 32.0
_BANK_LIMIT: Final = 256.0
# Of an account, what one draft may cost while it has more than a single guess takes.
_AT_ONCE: Final = 0.5


class Accounts:
    """Of an engine's sequences."""

    def __init__(self) -> None:
        self.bank = _BANK
        self._balances: dict[int, float] = {}

    def balance(self, sequence: int) -> float:
        return self._balances.get(sequence, ALLOWANCE)

    def limit(self, sequence: int, least: float) -> float:
        """What the next draft may cost; `least` is what one of a single guess does."""
        balance = self.balance(sequence)
        return max(_AT_ONCE * balance, least if least <= balance else 0.0)

    def earn(self, sequence: int, n_tokens: int) -> None:
        """It was given so many tokens, however they came about."""
        share = SHARE * n_tokens
        self._balances[sequence] = self.balance(sequence) + share
        self._store(share)

    def settle(self, sequence: int, cost: float, won: float) -> None:
        """A draft cost so much, and `won` tokens came of it that plain decoding would have given
        later."""
        self._balances[sequence] = self.balance(sequence) + won - cost
        self._store(won - cost)

    def spend(self, cost: float) -> None:
        """What was done for drafts to come, for nobody's account."""
        self.bank -= cost

    def forget(self, sequence: int) -> None:
        self._balances.pop(sequence, None)

    def _store(self, amount: float) -> None:
        self.bank = min(self.bank + amount, _BANK_LIMIT)
