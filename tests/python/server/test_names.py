"""What a request is refused for is called what its client calls it, whatever route it came by."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel

from pellucid.core.errors import BadInput
from pellucid.server.wire.chat import ChatRequest
from pellucid.server.wire.completions import CompletionRequest
from pellucid.server.wire.messages import MessagesRequest
from pellucid.server.wire.responses import ResponsesRequest
from tests.python.server.conftest import TOOLS_TEMPLATE
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object"}
STRUCTURED: dict[str, Any] = {"structured_outputs": {"regex": "a+"}}
TOOL = {"name": "look", "parameters": SCHEMA, "strict": True}
RESPONSE: dict[str, Any] = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
TEXT = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}
ANTHROPIC: dict[str, Any] = {"messages": [HI], "max_tokens": 5, "system": "s"}

ASKED: dict[str, tuple[str, type[BaseModel], dict[str, Any]]] = {
    "completion": ("/v1/completions", CompletionRequest, {"prompt": "a", "max_tokens": 5}),
    "completions": ("/v1/completions", CompletionRequest, {"prompt": ["a", "b"]}),
    "regex": ("/v1/completions", CompletionRequest, {"prompt": "a", **STRUCTURED}),
    "chat": ("/v1/chat/completions", ChatRequest, {"messages": [HI], "logprobs": True}),
    "format": (
        "/v1/chat/completions",
        ChatRequest,
        {"messages": [HI], "response_format": RESPONSE},
    ),
    "chat tools": (
        "/v1/chat/completions",
        ChatRequest,
        {"messages": [HI], "tools": [{"type": "function", "function": TOOL}]},
    ),
    "responses": ("/v1/responses", ResponsesRequest, {"input": "hi", "instructions": "be"}),
    "items": ("/v1/responses", ResponsesRequest, {"input": [HI], "max_output_tokens": 5}),
    "text": ("/v1/responses", ResponsesRequest, {"input": [HI], "text": TEXT}),
    "functions": (
        "/v1/responses",
        ResponsesRequest,
        {"input": [HI], "tools": [{"type": "function", **TOOL}]},
    ),
    "message": ("/v1/messages", MessagesRequest, {**ANTHROPIC, "stop_sequences": ["x"]}),
    "prefilled": (
        "/v1/messages",
        MessagesRequest,
        {**ANTHROPIC, "messages": [HI, {"role": "assistant", "content": "So"}]},
    ),
    "message tools": (
        "/v1/messages",
        MessagesRequest,
        {**ANTHROPIC, "tools": [{"name": "look", "input_schema": SCHEMA, "strict": True}]},
    ),
}
REFUSED = [
    "messages is empty: give at least one",
    "messages[1].content must be a string or a list of parts",
    "messages[2] is nested more than 64 deep",
    "position 3: a token id is a whole number, not 'a'",
    "continue_final_message needs a last message that ends in text",
    "max_tokens must be from 1 to 9, not 0",
    "min_tokens 7 is above max_tokens 5",
    "stop must hold non-empty strings, not ''",
    "logprobs must be from 0 to 20, not 30",
    "structured_outputs: json: a keyword is not known",
    "structured_outputs: the grammar cannot be followed further",
    "grammar: line 1: a rule has no name",
    "chat_template_kwargs: 'a' is nothing that this model's chat template reads: leave it out",
]


def fields_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


EVERY_FIELD = set().union(*(fields_of(model) for _, model, _ in ASKED.values()))
TELLING = {name for name in EVERY_FIELD if "_" in name}  # others are words too


def named_wrongly(message: str, model: type[BaseModel]) -> set[str]:
    words = set(re.findall(r"[a-z_]+", message))
    return (words & TELLING) - fields_of(model)


@pytest.fixture(scope="module")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.python.engine.tiny import write_model

    path = write_model(tmp_path_factory.mktemp("names") / "tiny.gguf")
    running = Running(FakeClient(path, template=TOOLS_TEMPLATE))
    yield running
    running.close()


def could_be(what: str, said: str) -> bool:
    """Whether the engine says so of what that client asked."""
    path, _, body = ASKED[what]
    if said.startswith(("structured_outputs", "grammar")):
        return bool(FORMS & set(body))
    if said.startswith("continue_final_message"):
        return what == "prefilled"
    unknown = {
        "/v1/completions": ("chat_template_kwargs", "messages"),
        "/v1/chat/completions": (),
        "/v1/responses": ("stop",),
        "/v1/messages": ("chat_template_kwargs", "min_tokens", "logprobs"),
    }
    return not said.startswith(unknown[path])


FORMS = {"structured_outputs", "response_format", "text", "tools"}
PAIRS = [(what, said) for what in ASKED for said in REFUSED if could_be(what, said)]


@pytest.mark.parametrize(("what", "said"), PAIRS)
def test_the_engines_names_become_the_clients(with_tools: Running, what: str, said: str) -> None:
    path, model, body = ASKED[what]
    with_tools.call(with_tools.client.reset)
    with_tools.client.refuses_with = BadInput(said)
    refused = with_tools.post(path, body)
    with_tools.client.refuses_with = None
    assert refused.status_code == 400
    error = refused.json()["error"]
    root = re.match(r"[a-z_]+", error["param"])
    assert root is not None
    assert root[0] in fields_of(model)
    assert not named_wrongly(error["message"], model), error["message"]
    if said.startswith(("structured_outputs", "grammar", "messages", "continue", "position")):
        assert root[0] in body, error
    if "structured_outputs" not in body:
        assert "structured_outputs" not in error["message"]


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no items": ("/v1/responses", {"input": []}, "input"),
    "no items, instructed": ("/v1/responses", {"input": [], "instructions": "be"}, "input"),
    "too few tokens": (
        "/v1/responses",
        {"input": "a", "min_tokens": 7, "max_output_tokens": 5},
        "min_tokens",
    ),
    "too few tokens in chat": (
        "/v1/chat/completions",
        {"messages": [HI], "min_tokens": 7, "max_completion_tokens": 5},
        "min_tokens",
    ),
    "no tools": (
        "/v1/messages",
        {**ANTHROPIC, "tool_choice": {"type": "any"}},
        "tool_choice",
    ),
    "a form and tools": (
        "/v1/responses",
        {"input": "a", "text": TEXT, "tools": [{"type": "function", **TOOL}]},
        "tools",
    ),
    "arguments too deep": (
        "/v1/responses",
        {
            "input": [
                HI,
                {
                    "type": "function_call",
                    "call_id": "c",
                    "name": "look",
                    "arguments": '{"a":' * 90 + "1" + "}" * 90,
                },
            ]
        },
        "input",
    ),
    "arguments too deep in chat": (
        "/v1/chat/completions",
        {"messages": [HI], "chat_template_kwargs": {"tools": 1}},
        "chat_template_kwargs",
    ),
    "too long": ("/v1/responses", {"input": "x" * 9000}, "input"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_called_what_its_client_calls_it(with_tools: Running, what: str) -> None:
    path, body, param = FAULTS[what]
    with_tools.call(with_tools.client.reset)
    refused = with_tools.post(path, body)
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert error["param"] == param
    model = next(model for place, model, _ in ASKED.values() if place == path)
    assert not named_wrongly(error["message"], model), error["message"]
    assert "messages" in body or "messages" not in error["message"]
