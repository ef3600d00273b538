"""Accounts: what guessing has cost each sequence beside plain decoding, and what it may still cost.

A draft is made only if the sequence's account covers it with no guess right. So whatever becomes
of its guesses, an answer takes at most what plain decoding would have taken, a share of that and a
small allowance more: regret is bounded by construction, since what a draft costs is what its step
took more than a plain one. What guessing wins may be spent on guessing again. Most of the allowance
is for guesses that are likely right: such have to fail several times before it is lost.

The unit is the time that a token takes without drafts: a step's, over the sequences that decode in
it. So nothing changes where all steps take longer for a while.
"""

from __future__ import annotations

from typing import Final

# Of an answer's own time, what may be lost; and what it may lose before it has taken any, which an
# answer of 70 tokens is so at most 3 % slower by. Less likely guesses leave `RESERVE` of it alone:
# by those one of 70 tokens is at most 1.7 % slower.
SHARE: Final = 0.01
ALLOWANCE: Final = 1.4
RESERVE: Final = 0.9
LIKELY: Final = 0.6
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

    def limit(self, sequence: int, least: float, chance: float = 1.0) -> float:
        """What the next draft may cost, if its first guess is expected to be right with `chance`;
        `least` is what one of a single guess costs."""
        balance = self.balance(sequence)
        if chance < LIKELY:
            balance -= RESERVE
        return max(_AT_ONCE * balance, least if least <= balance else 0.0)

    def earn(self, sequence: int, n_tokens: int) -> None:
        """It was given so many tokens, however they came about."""
        self._add(sequence, SHARE * n_tokens)

    def settle(self, sequence: int, cost: float, won: float) -> None:
        """A draft cost so much, and `won` tokens came of it that plain decoding would have given
        later."""
        self._add(sequence, won - cost)

    def spend(self, cost: float) -> None:
        """What was done for drafts to come, for nobody's account."""
        self.bank -= cost

    def forget(self, sequence: int) -> None:
        self._balances.pop(sequence, None)

    def _add(self, sequence: int, amount: float) -> None:
        balances, bank = self._balances, self.bank + amount
        balances[sequence] = balances.get(sequence, ALLOWANCE) + amount
        self.bank = bank if bank < _BANK_LIMIT else _BANK_LIMIT
