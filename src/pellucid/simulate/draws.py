"""Random numbers that are a function of (seed, stream, index, count) alone.

The i-th request's lengths do not depend on how many numbers the requests before it took, nor on
the order in which processes ran. The mixing function is SplitMix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

from random import Random
from typing import Final

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


def mix(number: int) -> int:
    """64 bits, each of which depends on each of the given 64."""
    number = (number + _GOLDEN) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


class Draws(Random):
    """The standard library's distributions over a counter: `at(i)` begins the i-th draw anew."""

    _state = 0
    _count = 0
    _key = 0

    def at(self, index: int) -> Draws:
        """The same generator, at the beginning of draw `index`."""
        self._state = mix(self._key ^ mix(index))
        self._count = 0
        return self

    def random(self) -> float:
        """Uniform in [0, 1)."""
        self._count += 1
        return (mix(self._state + self._count * _GOLDEN) >> 11) * 2.0**-53


def draws(seed: int, stream: int) -> Draws:
    """The draws of one quantity: streams of one seed have nothing in common."""
    made = Draws()
    made._key = mix(mix(seed & _MASK) ^ mix(stream + (1 << 32)))
    return made.at(0)
