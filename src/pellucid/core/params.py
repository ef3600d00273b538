"""SamplingParams: how the next token is chosen and when an answer ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pellucid.core.errors import BadInput

MAX_LOGPROBS = 20
MAX_BIAS = 100.0


@dataclass(slots=True)
class SamplingParams:
    """How to choose tokens. Names and meanings as in vLLM and the OpenAI API.

    temperature 0 is greedy. `top_k` 0 or -1, `top_p` 1 and `min_p` 0 are off. `logprobs` k asks
    for the log-probability of each chosen token and of the k likeliest, from the model's own
    distribution (before penalties, temperature and filters). `seed` makes the draw of the token
    at position p a function of (seed, p) alone. `max_tokens` None means: to the context's end.

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

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            self.stop = (self.stop,)
        self.stop = tuple(self.stop)
        self.stop_token_ids = tuple(self.stop_token_ids)
        self.logit_bias = {int(token): float(bias) for token, bias in self.logit_bias.items()}
        self._check("n", self.n, 1, 1024)
        self._check("temperature", self.temperature, 0.0, 100.0)
        self._check("top_k", self.top_k, -1, 1 << 31)
        self._check("top_p", self.top_p, 0.0, 1.0, open_low=True)
        self._check("min_p", self.min_p, 0.0, 1.0)
        self._check("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        self._check("presence_penalty", self.presence_penalty, -100.0, 100.0)
        self._check("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        self._check("min_tokens", self.min_tokens, 0, 1 << 31)
        if self.max_tokens is not None:
            self._check("max_tokens", self.max_tokens, 1, 1 << 31)
            if self.min_tokens > self.max_tokens:
                raise BadInput(
                    f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}"
                )
        if self.logprobs is not None:
            self._check("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.seed is not None:
            self._check("seed", self.seed, -(1 << 63), (1 << 64) - 1)
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise BadInput(f"stop must hold non-empty strings, not {text!r}")
        for token, bias in self.logit_bias.items():
            self._check(f"logit_bias[{token}]", bias, -MAX_BIAS, MAX_BIAS)

    @staticmethod
    def _check(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise BadInput(f"{name} must be a finite number, not {value!r}")
        if not (low < value if open_low else low <= value) or value > high:
            bounds = f"{'above' if open_low else 'from'} {low:g} to {high:g}"
            raise BadInput(f"{name} must be {bounds}, not {value!r}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0
