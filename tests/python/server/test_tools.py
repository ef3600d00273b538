"""Tool calls: told from text however it is cut, streamed as it comes, by either format."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import llguidance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.server.tools.formats import HERMES, LLAMA3, ToolFormat, format_of
from pellucid.server.tools.parser import CallArguments, CallBegins, Text, ToolParser
from tests.python.server.conftest import TOOLS_TEMPLATE
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running, events_of

NAMES = frozenset({"get", "put"})
CALL = (
    '<tool_call>\n{"name": "get", "arguments": {"a": "}\\"{", "b": [1, {"c": null}]}}\n</tool_call>'
)
ARGUMENTS = '{"a": "}\\"{", "b": [1, {"c": null}]}'

Found = tuple[str, list[tuple[str, str]]]


def parsed(form: ToolFormat, pieces: Sequence[str], **options: Any) -> Found:
    """The text, and each call's name and arguments."""
    parser = ToolParser(form, NAMES, **options)
    parts = [part for piece in pieces for part in parser.push(piece)] + parser.finish()
    text, calls = "", []
    for part in parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, CallBegins):
            assert part.index == len(calls) and part.id.startswith("call_")
            calls.append([part.name, ""])
        elif isinstance(part, CallArguments):
            calls[part.index][1] += part.text
    return text, [(name, arguments) for name, arguments in calls]


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (HERMES, CALL, ("", [("get", ARGUMENTS)])),
        (HERMES, f"Well.\n{CALL}", ("Well.", [("get", ARGUMENTS)])),
        (HERMES, f"{CALL}\n{CALL}\n", ("", [("get", ARGUMENTS)] * 2)),
        (HERMES, f"{CALL} bye", (" bye", [("get", ARGUMENTS)])),
        (HERMES, "no call, a < b <tool", ("no call, a < b <tool", [])),
        (HERMES, "plain text \n", ("plain text \n", [])),
        (HERMES, "<tool_call>\nno\n</tool_call>", ("<tool_call>\nno\n</tool_call>", [])),
        (HERMES, '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
         ('<tool_call>{"name": "rm", "arguments": {}}</tool_call>', [])),
        (HERMES, '<tool_call>{"name": "put"}</tool_call>', ("", [("put", "{}")])),
        (HERMES, '<tool_call>{"arguments": {"x": 1}, "name": "put"}', ("", [("put", '{"x": 1}')])),
        (HERMES, '<tool_call>{"name": "put", "arguments": "{\\"x\\": 1}"}</tool_call>',
         ("", [("put", '{"x": 1}')])),
        (HERMES, '<tool_call>{"name": "get", "arguments": {"a": 1', ("", [("get", '{"a": 1')])),
        (HERMES, '<tool_call>{"name": "ge', ('<tool_call>{"name": "ge', [])),
        (HERMES, '{"name": "get", "arguments": {}}', ('{"name": "get", "arguments": {}}', [])),
        (LLAMA3, '{"name": "get", "parameters": {"a": 1}}', ("", [("get", '{"a": 1}')])),
        (LLAMA3, '<|python_tag|>{"name": "get", "parameters": {}}', ("", [("get", "{}")])),
        (LLAMA3, '{"name": "get", "parameters": {}}; {"name": "put", "parameters": {"b": 2}}',
         ("", [("get", "{}"), ("put", '{"b": 2}')])),
        (LLAMA3, 'Use {"name": "get"}', ('Use {"name": "get"}', [])),
        (LLAMA3, '{"name": "get"}text ', ("text", [("get", "{}")])),
        (LLAMA3, '{"colour": "red"}', ('{"colour": "red"}', [])),
        (LLAMA3, '{"name": "Anna", "age": 3}', ('{"name": "Anna", "age": 3}', [])),
    ],
)  # fmt: skip
def test_a_text_and_its_calls(form: ToolFormat, text: str, expected: Found) -> None:
    assert parsed(form, [text]) == expected
    assert parsed(form, list(text)) == expected


fragments = st.sampled_from(
    [CALL, "<tool_call>", "</tool_call>", "<tool", "{", "}", '"', "\\", '{"name": "get"', " ", "\n",
     '"name"', ": ", ', "arguments": {"a": 1}', "<|python_tag|>", "text", "get", ";", "é"]
)  # fmt: skip


@settings(max_examples=300)
@given(
    text=st.lists(fragments, max_size=12).map("".join),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    form=st.sampled_from([HERMES, LLAMA3]),
    only_one=st.booleans(),
)
def test_cuts_change_nothing_and_nothing_is_lost(
    text: str, cuts: list[int], form: ToolFormat, only_one: bool
) -> None:
    whole = parsed(form, [text], only_one=only_one)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert parsed(form, pieces, only_one=only_one) == whole
    if not whole[1]:
        assert whole[0] == text
    if only_one:
        assert len(whole[1]) <= 1


def test_a_bare_call_is_told_with_the_piece_that_it_comes_in() -> None:
    begins, arguments = ToolParser(LLAMA3, NAMES).push('{"name": "get", "parameters": {"a": 1}}')
    assert isinstance(begins, CallBegins) and arguments == CallArguments(0, '{"a": 1}')


def test_arguments_come_as_they_are_written() -> None:
    parser = ToolParser(HERMES, NAMES)
    assert parser.push('<tool_call>\n{"name": "get", "argu') == []
    begins, opening = parser.push('ments": {')
    assert isinstance(begins, CallBegins) and opening == CallArguments(0, "{")
    assert parser.push('"a": 1') == [CallArguments(0, '"a": 1')]
    assert parser.push("}}") == [CallArguments(0, "}")]


def test_the_format_is_the_templates() -> None:
    assert format_of(None) is None
    assert format_of("{{ messages }}") is None
    assert format_of("{% if tools %}<tool_call>{% endif %}") is HERMES
    assert format_of("{% if tools %}<|python_tag|>{% endif %}") is LLAMA3
    assert format_of("{% if tools %}{{ tools }}{% endif %}") is None


FUNCTIONS = [
    {
        "name": "get",
        "parameters": {
            "$defs": {"n": {"type": "integer"}},
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/n"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
    {"name": "put"},
]


def admits(grammar: str, text: str) -> bool:
    matcher = llguidance.LLMatcher(
        llguidance.LLTokenizer("byte"), llguidance.LLMatcher.grammar_from_lark(grammar)
    )
    assert not matcher.get_error(), matcher.get_error()
    data = list(text.encode())
    return bool(matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting())


def test_the_grammar_of_calls_is_what_the_parser_reads() -> None:
    get, put = '{"name": "get", "arguments": {"a": 1}}', '{"name": "put", "arguments": {"b": {}}}'
    bad = '{"name": "get", "arguments": {"a": "1"}}'
    call = "<tool_call>\n{}\n</tool_call>".format
    for functions in (FUNCTIONS, FUNCTIONS[:1]):
        forced = HERMES.as_grammar(functions, several=True, text=False)
        strict = HERMES.as_grammar(functions, several=True, text=True)
        for grammar in (forced, strict):
            assert admits(grammar, call(get))
            assert admits(grammar, call(put)) == (len(functions) == 2)
            assert admits(grammar, call(get) + "\n" + call(get))
            assert not admits(grammar, call(bad))
        for text in ("", "Hello < you", "Hello " + call(get)):
            assert admits(strict, text) == bool(text) and not admits(forced, text)
        assert not admits(strict, "Hello " + call(bad))
    one = HERMES.as_grammar(FUNCTIONS, several=False, text=False)
    assert admits(one, call(get)) and not admits(one, call(get) + "\n" + call(get))


def test_llamas_grammar_too() -> None:
    get = '{"name": "get", "parameters": {"a": 1}}'
    forced = LLAMA3.as_grammar(FUNCTIONS, several=True, text=False)
    free = LLAMA3.as_grammar(FUNCTIONS, several=True, text=True)
    assert admits(forced, get) and admits(forced, f"{get}; {get}") and not admits(forced, "Hi")
    assert admits(free, get) and admits(free, "Hi {") and not admits(free, '{"name": "x"}')


TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}


@pytest.fixture(scope="module")
def calling(tiny_path: Any) -> Any:
    def script(request: Any, index: int) -> str:
        return f"Well. {CALL}\n{CALL}"

    running = Running(FakeClient(tiny_path, script, TOOLS_TEMPLATE))
    yield running
    running.close()


def joined(lines: list[str]) -> tuple[str, list[dict[str, str]], str]:
    content, finish = "", ""
    calls: list[dict[str, str]] = []
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            content += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
            for call in choice["delta"].get("tool_calls", ()):
                if "id" in call:
                    assert call["index"] == len(calls) and call["type"] == "function"
                    calls.append({"name": call["function"]["name"], "arguments": ""})
                calls[call["index"]]["arguments"] += call["function"]["arguments"]
    return content, calls, finish


@pytest.mark.parametrize("parallel", [None, False])
def test_streamed_and_whole_say_the_same(calling: Running, parallel: bool | None) -> None:
    body = {**ASK, "parallel_tool_calls": parallel}
    response = calling.post("/v1/chat/completions", body).json()
    choice = response["choices"][0]
    n_calls = 1 if parallel is False else 2
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Well."
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    assert functions == [{"name": "get", "arguments": ARGUMENTS}] * n_calls
    lines = events_of(calling.post("/v1/chat/completions", {**body, "stream": True}))
    assert joined(lines) == ("Well.", functions, "tool_calls")
    assert json.loads(lines[-2])["usage"]["completion_tokens"] > 0
    # and what was answered can be asked again
    again = {**ASK, "messages": [*ASK["messages"], choice["message"],
             {"role": "tool", "tool_call_id": "x", "content": "5"}]}  # fmt: skip
    assert calling.post("/v1/chat/completions", again).status_code == 200


def test_one_call_is_the_end_of_its_answer(calling: Running) -> None:
    """Nothing more is computed for it, streamed or not, and nothing more said."""
    body = {**ASK, "parallel_tool_calls": False, "logprobs": True, "return_token_ids": True}
    chunks = list(
        map(
            json.loads,
            events_of(calling.post("/v1/chat/completions", {**body, "stream": True}))[:-1],
        )
    )
    used = chunks[-1]["usage"]["completion_tokens"]
    assert used < len(f"Well. {CALL}\n{CALL}")
    whole = calling.post("/v1/chat/completions", body).json()
    [choice] = whole["choices"]
    assert whole["usage"]["completion_tokens"] == used
    streamed = [chunk["choices"][0] for chunk in chunks]
    said = [one["logprobs"]["content"] for one in streamed if one["logprobs"]]
    assert [entry for entries in said for entry in entries] == choice["logprobs"]["content"]
    ids = [token for one in streamed for token in one.get("token_ids", ())]
    assert ids == choice["token_ids"]


def test_log_probabilities_wait_for_text_that_a_mark_holds_back(tiny_path: Any, serve: Any) -> None:
    """What may yet become a call is told later, and what is said of its tokens with it."""
    running = serve(FakeClient(tiny_path, lambda *_: "a <tool_ b <", TOOLS_TEMPLATE))
    tools = [{"type": "function", **FUNCTIONS[0]}]
    body = {"input": "hi", "tools": tools, "top_logprobs": 1}
    whole = running.post("/v1/responses", body).json()["output"][0]["content"][0]
    assert whole["text"] == "a <tool_ b <"
    lines = events_of(running.post("/v1/responses", {**body, "stream": True}))
    events = [json.loads(line) for line in lines[:-1]]
    assert events[-1]["response"]["output"][0]["content"][0] == whole
    deltas = [e for e in events if e["type"] == "response.output_text.delta"]
    assert [entry for e in deltas for entry in e["logprobs"]] == whole["logprobs"]


def test_none_means_none(calling: Running) -> None:
    response = calling.post("/v1/chat/completions", {**ASK, "tool_choice": "none"}).json()
    message = response["choices"][0]["message"]
    assert CALL in message["content"] and "tool_calls" not in message
    assert "tools:" not in (calling.client.seen[-1].prompt or "")


@pytest.mark.parametrize(
    ("choice", "needle"),
    [
        ("auto", None),
        ("required", '"put"'),
        ({"type": "function", "function": {"name": "get"}}, '"get"'),
    ],
)
def test_a_call_that_must_be_made_is_enforced(
    calling: Running, choice: Any, needle: str | None
) -> None:
    response = calling.post("/v1/chat/completions", {**ASK, "tool_choice": choice})
    assert response.status_code == 200, response.text
    request = calling.client.seen[-1]
    assert "tools:" in request.prompt
    structured = request.params.structured_outputs
    assert (structured is None) == (needle is None)
    if structured is not None:
        assert needle in structured.grammar
        assert ('"put"' in structured.grammar) == (choice == "required")


def test_strict_tools_are_enforced_where_they_are_called(calling: Running) -> None:
    strict = [{"type": "function", "function": {**FUNCTIONS[0], "strict": True}}]
    calling.post("/v1/chat/completions", {**ASK, "tools": strict})
    request = calling.client.seen[-1]
    assert "TEXT" in request.params.structured_outputs.grammar
    assert "strict" not in request.prompt


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"tools": TOOLS + TOOLS}, "tools"),
        ({"tools": TOOLS * 70}, "tools"),
        ({"response_format": {"type": "json_object"}}, "tools"),
    ],
)
def test_what_cannot_be_is_refused(calling: Running, change: Any, param: str) -> None:
    response = calling.post("/v1/chat/completions", {**ASK, **change})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_the_other_routes_speak_of_calls_in_their_way(calling: Running) -> None:
    flat = [{"type": "function", **function} for function in FUNCTIONS]
    response = calling.post("/v1/responses", {"input": "hi", "tools": flat}).json()
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["message", "function_call", "function_call"]
    assert response["output"][1]["arguments"] == ARGUMENTS
    lines = events_of(calling.post("/v1/responses", {"input": "hi", "tools": flat, "stream": True}))
    done = json.loads(lines[-2])["response"]["output"]
    for item in (*done, *response["output"]):
        item.pop("id"), item.pop("call_id", None)
    assert done == response["output"]

    tools = [{"name": "get", "input_schema": FUNCTIONS[0]["parameters"]}]
    ask = {"messages": ASK["messages"], "tools": tools, "max_tokens": 500}
    message = calling.post("/v1/messages", ask).json()
    assert message["stop_reason"] == "tool_use"
    assert [block["type"] for block in message["content"]] == ["text", "tool_use", "tool_use"]
    assert message["content"][1]["input"] == json.loads(ARGUMENTS)
    events = [json.loads(line) for line in events_of(
        calling.post("/v1/messages", {**ask, "stream": True}))]  # fmt: skip
    pieces = [e["delta"]["partial_json"] for e in events
              if e["type"] == "content_block_delta" and "partial_json" in e["delta"]]  # fmt: skip
    assert "".join(pieces) == ARGUMENTS * 2
    result = {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": message["content"][1]["id"], "content": "5"},
        {"type": "text", "text": "so?"}]}  # fmt: skip
    again = {**ask, "messages": [*ask["messages"],
             {"role": "assistant", "content": message["content"]}, result]}  # fmt: skip
    assert calling.post("/v1/messages", again).status_code == 200
    assert "<|im_start|>tool\n5<|im_end|>" in calling.client.seen[-1].prompt
    result["content"][0] |= {"is_error": True}
    assert calling.post("/v1/messages", again).status_code == 200
    assert "<|im_start|>tool\nError: 5<|im_end|>" in calling.client.seen[-1].prompt
