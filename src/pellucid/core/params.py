"""SamplingParams: how the next token is chosen and when an answer ends."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid.core.errors import BadInput
from pellucid.core.structured import StructuredOutputs

MAX_LOGPROBS = 20
MAX_BIAS = 100.0
MAX_ANSWERS = 1024
MAX_COUNT = 1 << 31

_FLAGS = ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens", "speculative")


@dataclass(slots=True)
class SamplingParams:
    """How to choose tokens. Names and meanings as in vLLM and the OpenAI API.

    temperature 0 is greedy. `top_k` 0 or -1, `top_p` 1 and `min_p` 0 are off. `logprobs` k asks
    for the log-probability of each chosen token and of the k likeliest, from the model's own
    distribution (before penalties, temperature and filters). `seed` makes the draw of the token
    at position p a function of (seed, p) alone. `max_tokens` None means: to the context's end.
    `speculative` False: no drafts are made for it where others may have some.
    `stop`, `stop_token_ids` and `logit_bias` may be None for nothing. `structured_outputs` is the
    form that an answer must have; a mapping of its fields will do.

    Raises `BadInput` naming the field when a value is out of range.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    seed: int | None = None
    logprobs: int | None = None
    skip_special_tokens: bool = True
    structured_outputs: StructuredOutputs | None = None
    speculative: bool = True

    def __post_init__(self) -> None:
        self.n = _count("n", self.n, 1, MAX_ANSWERS)
        self.temperature = _number("temperature", self.temperature, 0.0, 100.0)
        self.top_k = _count("top_k", self.top_k, -1, MAX_COUNT)
        self.top_p = _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        self.min_p = _number("min_p", self.min_p, 0.0, 1.0)
        self.repetition_penalty = _number(
            "repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True
        )
        self.presence_penalty = _number("presence_penalty", self.presence_penalty, -100.0, 100.0)
        self.frequency_penalty = _number("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        self.min_tokens = _count("min_tokens", self.min_tokens, 0, MAX_COUNT)
        if self.max_tokens is not None:
            self.max_tokens = _count("max_tokens", self.max_tokens, 1, MAX_COUNT)
            if self.min_tokens > self.max_tokens:
                raise BadInput(
                    f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}"
                )
        if self.logprobs is not None:
            self.logprobs = _count("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.seed is not None:
            self.seed = _count("seed", self.seed, -(1 << 63), (1 << 64) - 1)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"{name} must be True or False, not {getattr(self, name)!r}")
        self.stop = _texts("stop", self.stop)
        self.stop_token_ids = _token_ids("stop_token_ids", self.stop_token_ids)
        self.logit_bias = _biases(self.logit_bias)
        self.structured_outputs = _structured(self.structured_outputs)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def by_scores_alone(self) -> bool:
        """Whether scores are taken as they are, no token's changed for what it is or was."""
        return not self.logit_bias and (
            self.repetition_penalty == 1.0
            and self.frequency_penalty == self.presence_penalty == 0.0
        )


def _structured(given: Any) -> StructuredOutputs | None:
    if given is None or isinstance(given, StructuredOutputs):
        return given
    if not isinstance(given, Mapping):
        raise BadInput(f"structured_outputs must be StructuredOutputs, not {str(given)[:50]!r}")
    known = StructuredOutputs.__dataclass_fields__
    for name in given:
        if name not in known:
            raise BadInput(f"structured_outputs has no {name!r}: it has {', '.join(known)}")
    return StructuredOutputs(**given)


def _number(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> float:
    """A finite number in its range. Raises `BadInput` naming the field."""
    lowest = low if not open_low else math.nextafter(low, math.inf)
    if type(value) is float and lowest <= value <= high:  # nearly always
        return value
    a_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not a_number or value != value:
        raise BadInput(f"{name} must be a finite number, not {value!r}")
    if not (low < value if open_low else low <= value) or value > high:
        bounds = f"{'above' if open_low else 'from'} {low:g} to {high:g}"
        raise BadInput(f"{name} must be {bounds}, not {value!r}")
    return float(value)


def _count(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in its range. Raises `BadInput` naming the field."""
    if type(value) is int and low <= value <= high:  # nearly always
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise BadInput(f"{name} must be a whole number, not {value!r}")
    count = operator.index(value)
    if not low <= count <= high:
        raise BadInput(f"{name} must be from {low} to {high}, not {count}")
    return count


def _texts(name: str, given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else _items(name, given, "strings")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise BadInput(f"{name} must hold non-empty strings, not {text!r}")
    return texts


def _token_ids(name: str, given: Any) -> tuple[int, ...]:
    return tuple(
        _count(f"{name}: a token id", token, 0, MAX_COUNT)
        for token in _items(name, given, "token ids")
    )


def _items(name: str, given: Any, of: str) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, bytes | bytearray | str | Mapping) or not isinstance(given, Iterable):
        raise BadInput(f"{name} must be a list of {of}, not {given!r}")
    return tuple(given)


def _biases(given: Any) -> dict[int, float]:
    """Token id to bias. Ids may be written out, as JSON has no other keys."""
    if given is not None and not isinstance(given, Mapping):
        raise BadInput(f"logit_bias must map token ids to numbers, not {given!r}")
    biases = {}
    for key, bias in (given or {}).items():
        written = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 11
        token = _count(
            f"logit_bias[{key!r}]: a token id", int(key) if written else key, 0, MAX_COUNT
        )
        if token in biases:
            raise BadInput(f"logit_bias[{key!r}] names token {token} again: give it once")
        biases[token] = _number(f"logit_bias[{token}]", bias, -MAX_BIAS, MAX_BIAS)
    return biases
