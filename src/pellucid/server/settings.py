"""What an application is told once, when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid.core.errors import BadInput
from pellucid.core.params import MAX_LOGPROBS
from pellucid.server.guard import GuardLimits


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds on what multiplies work or memory, each with its own refusal."""

    body_bytes: int = 8 << 20
    prompts: int = 256
    n: int = 64
    choices: int = 256
    """Answers of one request: prompts times `n`."""
    logprobs: int = MAX_LOGPROBS
    stop_strings: int = 16
    stop_length: int = 256
    stop_token_ids: int = 256
    bias_entries: int = 1024
    schema_bytes: int = 64 << 10
    schema_depth: int = 32
    tools: int = 128

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"limit {name} must be a whole number from 1, not {value!r}")
        if self.logprobs > MAX_LOGPROBS:
            raise BadInput(f"limit logprobs is at most {MAX_LOGPROBS}, not {self.logprobs}")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one application answers.

    served_model_names: what clients call the model; the first is what responses say. api_keys:
    without any, no key is asked for. allowed_origins: web pages from elsewhere that may use the
    server; `*` is all. keep_alive_s: the longest silence of a stream before a comment is sent.
    stalled_client_s: how long a client may leave sent bytes unread before its request is ended.
    guard: how much may be asked at once. access_log: a line in the log for each request.
    log_prompts: whether prompts may be written to the log. show_prompts: whether whoever looks at
    the live records may read the texts of others.
    """

    served_model_names: Sequence[str] = ("pellucid",)
    api_keys: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    limits: RequestLimits = field(default_factory=RequestLimits)
    keep_alive_s: float = 1.0
    stalled_client_s: float = 120.0
    guard: GuardLimits = field(default_factory=GuardLimits)
    access_log: bool = False
    log_prompts: bool = False
    show_prompts: bool = False

    def __post_init__(self) -> None:
        _texts("served_model_names", self.served_model_names)
        if not self.served_model_names:
            raise BadInput("served_model_names is empty: give the model a name")
        _texts("api_keys", self.api_keys)
        if not all(
            key.isascii() and key.isprintable() and key == key.strip() for key in self.api_keys
        ):
            raise BadInput(
                "an api_key has characters that no header carries as they are: use letters, digits "
                "and signs of ASCII, without blanks around them"
            )
        _texts("allowed_origins", self.allowed_origins)
        for name in ("keep_alive_s", "stalled_client_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
                raise BadInput(f"{name} must be a number of seconds above 0, not {value!r}")

    @property
    def model_name(self) -> str:
        return self.served_model_names[0]


def _texts(name: str, given: Any) -> None:
    if isinstance(given, str) or not all(isinstance(text, str) and text for text in given):
        raise BadInput(f"{name} must be a list of non-empty strings, not {given!r}")
