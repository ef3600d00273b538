"""The sampling flags of `run` and `chat`, and what they mean where they are not given.

A value that is not given is the model's own (`generation_config.json`, or `general.sampling` of a
GGUF file); where the model says nothing at all, temperature 0.7 and top-p 0.95.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid.core.params import SamplingParams

DEFAULT_MAX_TOKENS = 1024
DEFAULT_TEMPERATURE = 0.7
DEFAULT_TOP_P = 0.95

_GROUP = "Sampling"


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_GROUP, show_default=False)


Temperature = Annotated[
    float | None, _option("--temperature", "--temp", help="Spread of the choice; 0 is greedy.")
]
TopK = Annotated[int | None, _option("--top-k", help="Only the K likeliest tokens.")]
TopP = Annotated[
    float | None, _option("--top-p", help="Only the likeliest tokens that make up P together.")
]
MinP = Annotated[
    float | None,
    _option("--min-p", help="Only tokens at least P times as likely as the likeliest."),
]
RepetitionPenalty = Annotated[
    float | None, _option("--repetition-penalty", help="Above 1: tokens seen before weigh less.")
]
PresencePenalty = Annotated[
    float | None, _option("--presence-penalty", help="Taken from tokens the answer already has.")
]
FrequencyPenalty = Annotated[
    float | None, _option("--frequency-penalty", help="The same, for each time it has them.")
]
Seed = Annotated[int | None, _option("--seed", help="Makes the answer repeatable.")]
MaxTokens = Annotated[
    int | None,
    _option("--max-tokens", help=f"Length of the answer, at most. [{DEFAULT_MAX_TOKENS}]"),
]
Stop = Annotated[
    list[str] | None, _option("--stop", help="Text that ends the answer; may be given again.")
]
LogitBias = Annotated[
    list[str] | None,
    _option("--logit-bias", help="ID=VALUE, added to a token's score; may be given again."),
]


def sampling_params(model_defaults: SamplingParams, **given: Any) -> SamplingParams:
    """The parameters in effect. `given` holds the flags by their field's name, None: not given.

    Raises `BadInput` naming a value that is out of range.
    """
    from pellucid.core.params import SamplingParams

    values = {name: value for name, value in given.items() if value is not None}
    values.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    if "logit_bias" in values:
        values["logit_bias"] = _biases(values["logit_bias"])
    if _says_nothing(model_defaults, SamplingParams()):
        values.setdefault("temperature", DEFAULT_TEMPERATURE)
        values.setdefault("top_p", DEFAULT_TOP_P)
    return replace(model_defaults, **values)


def in_effect(params: SamplingParams) -> dict[str, Any]:
    """The parameters as JSON shows them."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(params).items()}


def _says_nothing(model: SamplingParams, neutral: SamplingParams) -> bool:
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    return all(getattr(model, name) == getattr(neutral, name) for name in names)


def _biases(given: list[str]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for item in given:
        token, _, value = item.partition("=")
        try:
            biases[int(token)] = float(value)
        except ValueError:
            raise BadInput(
                f"--logit-bias {item!r}: it is written ID=VALUE, a token id and a number"
            ) from None
    return biases
