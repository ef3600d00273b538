"""How long prompts and answers are: distributions over whole numbers of tokens."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Protocol

from pellucid.core.errors import BadInput
from pellucid.simulate.draws import Draws

MOST = 1 << 24  # tokens that anybody may ask about

_FORMS = "500, 100-900 or lognormal:MEAN:CV"
_NUMBER = r"\d{1,9}(?:\.\d{1,6})?"


class Lengths(Protocol):
    """A distribution. `words` says it in the form that `parse_lengths` reads."""

    @property
    def mean(self) -> float: ...

    @property
    def words(self) -> str: ...

    def draw(self, draws: Draws) -> int:
        """A length, at least 1."""
        ...

    def scaled(self, factor: float) -> Lengths:
        """The same shape, `factor` times as long."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    tokens: int

    @property
    def mean(self) -> float:
        return float(self.tokens)

    @property
    def words(self) -> str:
        return str(self.tokens)

    def draw(self, draws: Draws) -> int:
        return self.tokens

    def scaled(self, factor: float) -> Fixed:
        return Fixed(max(1, round(self.tokens * factor)))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each number from `low` to `high` alike."""

    low: int
    high: int

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def words(self) -> str:
        return f"{self.low}-{self.high}"

    def draw(self, draws: Draws) -> int:
        return self.low + int(draws.random() * (self.high - self.low + 1))

    def scaled(self, factor: float) -> Uniform:
        low = max(1, round(self.low * factor))
        return Uniform(low, max(low, round(self.high * factor)))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """By its mean and its coefficient of variation (deviation over mean)."""

    mean_tokens: float
    cv: float

    @property
    def mean(self) -> float:
        return self.mean_tokens

    @property
    def words(self) -> str:
        return f"lognormal:{self.mean_tokens:g}:{self.cv:g}"

    def draw(self, draws: Draws) -> int:
        variance = math.log1p(self.cv**2)
        mu = math.log(self.mean_tokens) - variance / 2
        return max(1, round(draws.lognormvariate(mu, math.sqrt(variance))))

    def scaled(self, factor: float) -> Lognormal:
        return Lognormal(max(1.0, self.mean_tokens * factor), self.cv)


def parse_lengths(text: str, what: str) -> Lengths:
    """What a flag says: `500`, `100-900` (each alike) or `lognormal:500:1.0` (mean, coefficient of
    variation). Raises `BadInput` naming `what`."""
    word = text.strip().lower()
    if match := re.fullmatch(r"\d{1,9}", word):
        return Fixed(_tokens(int(word), text, what))
    if match := re.fullmatch(r"(\d{1,9})-(\d{1,9})", word):
        low, high = (_tokens(int(part), text, what) for part in match.groups())
        if low > high:
            raise BadInput(f"{what} {text!r}: {low} is above {high}: write the lower one first")
        return Uniform(low, high)
    if match := re.fullmatch(rf"lognormal:({_NUMBER}):({_NUMBER})", word):
        mean, cv = float(match[1]), float(match[2])
        _tokens(round(mean), text, what)
        if not 0 < cv <= 10:
            raise BadInput(f"{what} {text!r}: the coefficient of variation must be above 0, to 10")
        return Lognormal(mean, cv)
    raise BadInput(f"{what} {text[:60]!r} is no length: write {_FORMS}")


def _tokens(count: int, text: str, what: str) -> int:
    if not 1 <= count <= MOST:
        raise BadInput(f"{what} {text!r}: {count} tokens: it must be from 1 to {MOST}")
    return count
