"""A counter-based generator: a number is a function of its key and counter, and of nothing else.

Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011): ten rounds of two 32x32-bit products. No state is kept, so a draw does not depend on
how many were made before it, in which batch, or on which thread.
"""

from __future__ import annotations

from typing import Final

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85  # golden ratio and sqrt(3) - 1: the key moves on between rounds
_ROUNDS = 10

# The last counter word keeps the uses of one seed apart.
_DRAW, _SAMPLE_SEED, _GUESS, _ACCEPT, _REST, _SECOND_SEED = range(6)
USES: Final = {"draw": _DRAW, "guess": _GUESS, "accept": _ACCEPT, "rest": _REST}


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 32-bit words from four of counter and two of key."""
    a, b, c, d = counter
    low, high = key
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (
            (second >> 32) ^ b ^ low,
            second & _MASK32,
            (first >> 32) ^ d ^ high,
            first & _MASK32,
        )
        low, high = (low + _WEYL[0]) & _MASK32, (high + _WEYL[1]) & _MASK32
    return a, b, c, d


def uniform(seed: int, position: int, use: str = "draw") -> float:
    """A number in [0, 1), with 53 random bits, for the token at `position` under `seed`.

    seed: any integer, taken modulo 2^64. position: that of the token in its sequence, from 0.
    `use`: numbers for different uses (of `USES`) are independent.
    """
    bits = _words(seed, position, USES[use])
    return (bits >> 11) * 2.0**-53


def sample_seed(seed: int, index: int) -> int:
    """The seed of sample `index` of a request: the request's own for the first, so that asking
    for more samples never changes it."""
    return seed & _MASK64 if index == 0 else _words(seed, index, _SAMPLE_SEED)


def second_seed(seed: int, position: int) -> int:
    """The seed of another draw for the token at `position`, independent of the first."""
    return _words(seed, position, _SECOND_SEED)


def _words(seed: int, count: int, use: int) -> int:
    """64 random bits."""
    seed &= _MASK64
    high, low, _, _ = philox(
        (count & _MASK32, count >> 32 & _MASK32, 0, use), (seed & _MASK32, seed >> 32)
    )
    return high << 32 | low
