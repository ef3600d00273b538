"""What a caller may ask of speculation, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, cast

from pellucid.core.errors import BadInput

Method = Literal["ngram", "draft", "early-exit"]
Rule = Literal["exact", "rejection"]

METHODS: Final = ("ngram", "draft", "early-exit")
RULES: Final = ("exact", "rejection")
MAX_TOKENS: Final = 32
# As far as guesses pay at all: copied text often goes on for long, a model's guesses do not.
DEFAULT_TOKENS: Final[Mapping[str, int]] = {"ngram": 12, "draft": 6, "early-exit": 4}


@dataclass(frozen=True, slots=True)
class SpeculativeSettings:
    """method: "ngram" looks the request's own text up, "draft" asks the smaller `model`,
    "early-exit" the first `layers` of the model itself (None: a third of them). tokens: the most
    that is guessed at once; None is the method's own number. rule: "exact" gives what plain
    decoding would, bit for bit; "rejection" the same distribution. adaptive False: always `tokens`,
    whether it pays or not. Of a draft model: `quantization` is the type that its weights are
    brought to at load (None: as they are); of its scores it makes those of the first `vocabulary`
    tokens, unless a text has many others (None: 32,768 of a vocabulary more than twice as large).

    Raises `BadInput` naming the field.
    """

    method: Method
    model: str | Path | None = None
    tokens: int | None = None
    rule: Rule = "exact"
    layers: int | None = None
    adaptive: bool = True
    quantization: str | None = None
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        _one_of("method", self.method, METHODS)
        _one_of("rule", self.rule, RULES)
        if self.method == "draft" and self.model is None:
            raise BadInput("speculative: method 'draft' needs a model: name a smaller one")
        if self.method != "draft" and self.model is not None:
            raise BadInput(
                f"speculative: method {self.method!r} takes no model: leave it out, or choose draft"
            )
        if self.model is not None and (not isinstance(self.model, str | Path) or not self.model):
            raise BadInput(f"speculative: model must be a path or a name, not {self.model!r}")
        if self.layers is not None and self.method != "early-exit":
            raise BadInput(f"speculative: layers are for early-exit, not for {self.method!r}")
        _count("tokens", self.tokens, MAX_TOKENS)
        _count("layers", self.layers, 1 << 16)
        _count("vocabulary", self.vocabulary, 1 << 24)
        for name in "quantization", "vocabulary":
            if getattr(self, name) is not None and self.method != "draft":
                raise BadInput(f"speculative: {name} is for a draft model, not {self.method!r}")
        if not isinstance(self.quantization, str | None):
            raise BadInput(
                f"speculative: quantization must be the name of a type, not {self.quantization!r}"
            )
        if not isinstance(self.adaptive, bool):
            raise BadInput(f"speculative: adaptive must be True or False, not {self.adaptive!r}")

    @property
    def most(self) -> int:
        """Tokens that may be guessed at once."""
        return self.tokens or DEFAULT_TOKENS[self.method]

    def told(self) -> dict[str, Any]:
        """What is on, as plain data."""
        told: dict[str, Any] = {"method": self.method, "rule": self.rule, "tokens": self.most}
        if self.model is not None:
            told["model"] = str(self.model)
        for name in "layers", "quantization", "vocabulary":
            if getattr(self, name) is not None:
                told[name] = getattr(self, name)
        if not self.adaptive:
            told["adaptive"] = False
        return told

    @staticmethod
    def of(given: Any) -> SpeculativeSettings:
        """From a mapping of fields. Raises `BadInput`."""
        if isinstance(given, SpeculativeSettings):
            return given
        if not isinstance(given, Mapping):
            raise BadInput(
                f"speculative must be a mapping such as {{'method': 'ngram'}}, not {given!r}"
            )
        for name in given:
            if name not in FIELDS:
                raise BadInput(f"speculative has no {name!r}: it has {', '.join(FIELDS)}")
        if "method" not in given:
            raise BadInput(f"speculative: method is missing: one of {', '.join(METHODS)}")
        return SpeculativeSettings(**cast("dict[str, Any]", dict(given)))


FIELDS: Final = tuple(field.name for field in fields(SpeculativeSettings))
"""Each has a flag, `--speculative-` and its name."""


def from_flags(flags: Mapping[str, Any]) -> dict[str, Any] | None:
    """What flags say, by `FIELDS` (None, or `adaptive` True: nothing), as `SpeculativeSettings.of`
    takes it; None if they say nothing. A model alone means that it makes the drafts. Raises
    `BadInput`."""
    given = {name: value for name, value in flags.items() if value is not None}
    if given.get("adaptive") is True:
        del given["adaptive"]
    if not given:
        return None
    if "method" not in given:
        if "model" not in given:
            raise BadInput(
                f"speculative {next(iter(given))} without a method or a model: say who is to guess"
            )
        given["method"] = "draft"
    SpeculativeSettings.of(given)  # what cannot be is said before anything is fetched
    return given


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadInput(f"speculative: {name} must be one of {', '.join(known)}, not {value!r}")


def _count(name: str, value: Any, most: int) -> None:
    if value is None:
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        raise BadInput(f"speculative: {name} must be from 1 to {most}, not {value!r}")
