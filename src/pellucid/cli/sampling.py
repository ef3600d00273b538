"""The sampling flags of `run` and `chat`, and what they mean where they are not given.

A value that is not given is the model's own (`generation_config.json`, or `general.sampling` of a
GGUF file); where the model says nothing at all, temperature 0.7 and top-p 0.95.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid.core.params import SamplingParams

DEFAULT_MAX_TOKENS = 1024
DEFAULT_TEMPERATURE = 0.7
DEFAULT_TOP_P = 0.95

_OPTIONS = (
    click.option("--temperature", "--temp", type=float, help="Spread of the choice; 0 is greedy."),
    click.option("--top-k", type=int, help="Only the K likeliest tokens."),
    click.option("--top-p", type=float, help="Only the likeliest tokens that make up P together."),
    click.option(
        "--min-p", type=float, help="Only tokens at least P times as likely as the likeliest."
    ),
    click.option(
        "--repetition-penalty", type=float, help="Above 1: tokens seen before weigh less."
    ),
    click.option(
        "--presence-penalty", type=float, help="Taken from tokens the answer already has."
    ),
    click.option("--frequency-penalty", type=float, help="The same, for each time it has them."),
    click.option("--seed", type=int, help="Makes the answer repeatable."),
    click.option(
        "--max-tokens", type=int, help=f"Length of the answer, at most. [{DEFAULT_MAX_TOKENS}]"
    ),
    click.option("--stop", multiple=True, help="Text that ends the answer; may be given again."),
    click.option(
        "--logit-bias",
        multiple=True,
        metavar="ID=VALUE",
        help="Added to a token's score; may be given again.",
    ),
)


def sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags, each under the name of its field in `SamplingParams`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def sampling_params(model_defaults: SamplingParams, **given: Any) -> SamplingParams:
    """The parameters in effect. `given` holds the flags by their field's name; None, or none of
    what may be given again: not given.

    Raises `BadInput` naming a value that is out of range.
    """
    from pellucid.core.params import SamplingParams

    values = {name: value for name, value in given.items() if value not in (None, ())}
    values.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    if "logit_bias" in values:
        values["logit_bias"] = _biases(values["logit_bias"])
    if _says_nothing(model_defaults, SamplingParams()):
        values.setdefault("temperature", DEFAULT_TEMPERATURE)
        values.setdefault("top_p", DEFAULT_TOP_P)
    return replace(model_defaults, **values)


def check_early(given: dict[str, Any]) -> None:
    """A flag out of range is said at once, not after the model has been fetched and loaded."""
    from pellucid.core.params import SamplingParams

    sampling_params(SamplingParams(), **given)


def in_effect(params: SamplingParams) -> dict[str, Any]:
    """The parameters as JSON shows them."""
    shown = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(params).items()}
    if params.structured_outputs is not None:
        kind = params.structured_outputs.kind
        shown["structured_outputs"] = {kind: getattr(params.structured_outputs, kind)}
    return shown


def _says_nothing(model: SamplingParams, neutral: SamplingParams) -> bool:
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    return all(getattr(model, name) == getattr(neutral, name) for name in names)


def _biases(given: Sequence[str]) -> dict[int, float]:
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
