"""From a request's fields to `SamplingParams`, within the server's limits.

Whose defaults apply where a field is not given: the model's own generation settings, else
OpenAI's (temperature 1, top_p 1, nothing else filtered). How long an answer may be: 16 tokens for a
completion unless the model says otherwise, up to the context's end for a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pellucid.core.errors import BadInput
from pellucid.core.params import SamplingParams
from pellucid.core.structured import StructuredOutputs
from pellucid.server.errors import ApiError, api_error_of, bad_request
from pellucid.server.settings import RequestLimits
from pellucid.server.wire.chat import ChatRequest
from pellucid.server.wire.completions import CompletionRequest
from pellucid.server.wire.messages import MessagesRequest
from pellucid.server.wire.responses import ResponsesRequest
from pellucid.server.wire.sampling import (
    Choosing,
    JsonObjectFormat,
    JsonSchemaFormat,
    OpenAiGenerating,
    Structured,
)

# Fields of `Choosing` that are `SamplingParams`' own, by the same name.
_SAME_NAME: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "ignore_eos",
    "min_tokens",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "speculative",
)

_LAYOUT: Final = (
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
)

RESPONSES_NAMES: Final = {
    "prompt": "input",
    "max_tokens": "max_output_tokens",
    "logprobs": "top_logprobs",
}
MESSAGES_NAMES: Final = {"stop": "stop_sequences"}
"""What requests of other forms call what the engine calls otherwise."""


def completion_params(
    asked: CompletionRequest, defaults: SamplingParams, limits: RequestLimits
) -> SamplingParams:
    """Raises `ApiError` naming the field."""
    values = _generating(asked, limits)
    if asked.logprobs is not None:
        _at_most("logprobs", asked.logprobs, limits.logprobs)
        values["logprobs"] = asked.logprobs
    if asked.max_tokens is not None:
        values["max_tokens"] = asked.max_tokens
    if asked.best_of is not None and asked.best_of != (asked.n or 1):
        raise bad_request(
            f"best_of {asked.best_of}: answers are not ranked here: leave it out, or equal to n",
            "best_of",
        )
    return _made(defaults, values)


def chat_params(
    asked: ChatRequest, defaults: SamplingParams, limits: RequestLimits
) -> SamplingParams:
    """Raises `ApiError` naming the field."""
    values = _generating(asked, limits)
    if asked.top_logprobs is not None and not asked.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    if asked.logprobs:
        _at_most("top_logprobs", asked.top_logprobs or 0, limits.logprobs)
        values["logprobs"] = asked.top_logprobs or 0
    asks = {asked.max_tokens, asked.max_completion_tokens} - {None}
    if len(asks) > 1:
        raise bad_request(
            f"max_tokens {asked.max_tokens} and max_completion_tokens "
            f"{asked.max_completion_tokens} mean the same: give one of them",
            "max_completion_tokens",
        )
    values["max_tokens"] = asks.pop() if asks else None
    completion = asked.max_completion_tokens is not None
    return _made(defaults, values, {"max_tokens": "max_completion_tokens"} if completion else {})


def responses_params(
    asked: ResponsesRequest, defaults: SamplingParams, limits: RequestLimits
) -> SamplingParams:
    """Raises `ApiError` naming the field."""
    _check_stream(asked)
    values = _choosing(asked, limits)
    if asked.top_logprobs is not None or asked.include:
        _at_most("top_logprobs", asked.top_logprobs or 0, limits.logprobs)
        values["logprobs"] = asked.top_logprobs or 0
    values["max_tokens"] = asked.max_output_tokens
    form = asked.text.format if asked.text is not None else None
    if form is not None and form.type != "text":
        _unstructured(values, "text.format")
        if form.type == "json_schema":
            values["structured_outputs"] = _schema(form.schema_, limits, "text.format.schema")
        else:
            values["structured_outputs"] = StructuredOutputs(json_object=True)
    return _made(defaults, values, RESPONSES_NAMES)


def messages_params(
    asked: MessagesRequest, defaults: SamplingParams, limits: RequestLimits
) -> SamplingParams:
    """Raises `ApiError` naming the field."""
    values = {
        name: getattr(asked, name)
        for name in ("temperature", "top_p", "top_k", "max_tokens", "speculative")
        if getattr(asked, name) is not None
    }
    if asked.stop_sequences:
        values["stop"] = _stops("stop_sequences", asked.stop_sequences, limits)
    return _made(defaults, values, MESSAGES_NAMES)


def form_names(asked: Choosing) -> dict[str, str]:
    """Where the form of the answer was asked for, under the names that errors about it begin
    with."""
    if asked.structured_outputs is not None:
        param = next(
            (f"structured_outputs.{name}" for name in _given_forms(asked.structured_outputs)), None
        )
    elif isinstance(asked, OpenAiGenerating):
        schema = isinstance(asked.response_format, JsonSchemaFormat)
        param = "response_format.json_schema.schema" if schema else "response_format"
    else:
        param = "text.format.schema"
    return named_form(param or "structured_outputs")


def named_form(param: str) -> dict[str, str]:
    """The names that errors about a form of the answer begin with, as `param`."""
    return dict.fromkeys(("structured_outputs", "schema", "grammar"), param)


def sampling_in_effect(params: SamplingParams) -> dict[str, Any]:
    """The parameters that decide how a token is chosen, as JSON."""
    names = (
        "temperature top_k top_p min_p repetition_penalty presence_penalty frequency_penalty"
    ).split()
    return {name: getattr(params, name) for name in names}


def _generating(asked: OpenAiGenerating, limits: RequestLimits) -> dict[str, Any]:
    _check_stream(asked)
    values = _choosing(asked, limits)
    if asked.n is not None:
        _at_most("n", asked.n, limits.n)
        values["n"] = asked.n
    if asked.stop is not None:
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop
        values["stop"] = _stops("stop", stops, limits)
    if isinstance(asked.response_format, JsonObjectFormat | JsonSchemaFormat):
        _unstructured(values, "response_format")
        values["structured_outputs"] = _formatted(asked.response_format, limits)
    return values


def _choosing(asked: Choosing, limits: RequestLimits) -> dict[str, Any]:
    values = {name: getattr(asked, name) for name in _SAME_NAME if getattr(asked, name) is not None}
    for name, most in (
        ("logit_bias", limits.bias_entries),
        ("stop_token_ids", limits.stop_token_ids),
    ):
        count = len(values.get(name, ()))
        if count > most:
            raise bad_request(f"{name} has {count} entries and at most {most} are taken", name)
    if asked.seed is not None and asked.seed != -1:  # -1 is no seed, as elsewhere
        values["seed"] = asked.seed
    if asked.structured_outputs is not None:
        values["structured_outputs"] = _structured(asked.structured_outputs, limits)
    return values


def _stops(name: str, stops: Sequence[str], limits: RequestLimits) -> tuple[str, ...]:
    if len(stops) > limits.stop_strings:
        raise bad_request(
            f"{name} has {len(stops)} strings and at most {limits.stop_strings} are looked for",
            name,
        )
    for place, stop in enumerate(stops):
        if len(stop) > limits.stop_length:
            raise bad_request(
                f"{name}[{place}] has {len(stop)} characters and at most {limits.stop_length} are "
                "looked for",
                f"{name}[{place}]",
            )
    return tuple(stops)


def _check_stream(asked: OpenAiGenerating | ResponsesRequest) -> None:
    options = asked.stream_options
    if options is not None and any(options.model_dump().values()) and not asked.stream:
        raise bad_request(
            "stream_options is for streams alone: ask for a stream, or leave it out",
            "stream_options",
        )


def _formatted(
    form: JsonObjectFormat | JsonSchemaFormat, limits: RequestLimits
) -> StructuredOutputs:
    if isinstance(form, JsonObjectFormat):
        return StructuredOutputs(json_object=True)
    return _schema(form.json_schema.schema_, limits, "response_format.json_schema.schema")


def _structured(asked: Structured, limits: RequestLimits) -> StructuredOutputs:
    given = _given_forms(asked)
    if len(given) != 1:
        found = ", ".join(given) or "none"
        raise bad_request(
            "structured_outputs takes exactly one of json, json_object, regex, choice and "
            f"grammar; it has {found}",
            "structured_outputs",
        )
    name, value = next(iter(given.items()))
    param = f"structured_outputs.{name}"
    check_size(value, limits, param)
    return _checked(given, param)


def _given_forms(asked: Structured) -> dict[str, Any]:
    forms = (
        ("json", asked.json_),
        ("json_object", asked.json_object),
        ("regex", asked.regex),
        ("choice", asked.choice),
        ("grammar", asked.grammar),
    )
    return {name: value for name, value in forms if value is not None}


def _schema(schema: Any, limits: RequestLimits, param: str) -> StructuredOutputs:
    check_size(schema, limits, param)
    return _checked({"json": schema}, param)


def _checked(given: Mapping[str, Any], param: str) -> StructuredOutputs:
    try:
        return StructuredOutputs(**given)
    except BadInput as error:
        raise bad_request(str(error), param) from error


def check_size(value: Any, limits: RequestLimits, param: str) -> None:
    """Raises `ApiError` for a schema or grammar that is too large or too deep to be looked at."""
    depth = _depth(value, limits.schema_depth)
    if depth > limits.schema_depth:
        raise bad_request(
            f"{param} is nested deeper than the {limits.schema_depth} levels that are read", param
        )
    size = len(value if isinstance(value, str) else json.dumps(value))
    if size > limits.schema_bytes:
        raise bad_request(
            f"{param} has {size} bytes and at most {limits.schema_bytes} are read", param
        )


def _depth(value: Any, most: int) -> int:
    """How deep lists and objects are nested, looking no further than `most` + 1."""
    level, depth = [value], 0
    while True:
        inner = [
            item
            for node in level
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
        if not any(isinstance(node, dict | list) for node in level) or depth > most:
            return depth
        level, depth = inner, depth + 1


def _unstructured(values: Mapping[str, Any], param: str) -> None:
    if "structured_outputs" in values:
        raise bad_request(f"{param} and structured_outputs both form the answer: give one", param)


def _at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise bad_request(f"{name} is at most {most} here, not {value}", name)


def _made(
    defaults: SamplingParams, values: dict[str, Any], names: Mapping[str, str] | None = None
) -> SamplingParams:
    try:
        return replace(defaults, **values)
    except BadInput as error:
        raise as_api_error(error, names) from error


def as_api_error(error: Exception, names: Mapping[str, str] | None = None) -> ApiError:
    """`api_error_of`, where fields are called as the engine calls them, or as `names` says."""
    same = {name: name for name in (*SamplingParams.__slots__, *_LAYOUT)}
    given = {**same, **(names or {})}
    if "prompt" in given:  # how messages about it begin
        given |= dict.fromkeys(("messages", "position", "chat", "conversation"), given["prompt"])
    return api_error_of(error, given)
