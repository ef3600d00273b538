"""Requests are taken to the letter: what is not honoured is refused, or let go and listed."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pellucid.server.errors import ApiError
from pellucid.server.honoured import REQUESTS
from pellucid.server.reading import (
    MOST_KEYS_IN_ALL,
    MOST_OBJECTS,
    MOST_STRINGS,
    _once_each,
    json_object,
    validate,
)
from tests.python.server.running import Running

CHAT = {"messages": [{"role": "user", "content": "hi"}]}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "hi", "colour": 1}, "colour"),
        ({"prompt": "hi", "temperature": "1"}, "temperature"),
        ({"prompt": "hi", "temperature": -1}, "temperature"),
        ({"prompt": "hi", "max_tokens": 1.5}, "max_tokens"),
        ({"prompt": "hi", "max_tokens": True}, "max_tokens"),
        ({"prompt": "hi", "stream": 1}, "stream"),
        ({"prompt": "hi", "suffix": "!"}, "suffix"),
        ({"prompt": "hi", "best_of": 2}, "best_of"),
        ({"prompt": "hi", "stop": ["a", ""]}, "stop[1]"),
        ({"prompt": "hi", "stop": [1]}, "stop[0]"),
        ({"prompt": "hi", "logit_bias": {"12": 1e30}}, "logit_bias.12"),
        ({"prompt": "hi", "logit_bias": {"abc": 1}}, "logit_bias['abc']"),
        ({"prompt": "hi", "logit_bias": {"-1": 1}}, "logit_bias['-1']"),
        ({"prompt": "hi", "logit_bias": {"49152": 1}}, "logit_bias[49152]"),
        ({"prompt": "hi", "logit_bias": {"12": 1, "012": 2}}, "logit_bias['012']"),
        ({"prompt": "hi", "min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        ({"prompt": "hi", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "hi", "guided_json": {}}, "guided_json"),
        ({"prompt": "hi", "stream_options": {"x": 1}}, "stream_options.x"),
        ({"prompt": "hi", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "hi", "response_format": {"type": "xml"}}, "response_format"),
        ({"prompt": "hi", "structured_outputs": {}}, "structured_outputs"),
        ({"prompt": "hi", "structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"prompt": [0, 99999]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [1, 2, -1]}, "prompt[2]"),
        ({"prompt": [[1, 2], [3, -1]]}, "prompt[1][1]"),
        ({"prompt": ["a", "b", 3]}, "prompt[2]"),
        ({}, "prompt"),
    ],
)
def test_a_field_that_cannot_be_honoured_is_named(server: Running, body: Any, param: str) -> None:
    response = server.post("/v1/completions", body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param), error
    assert error["message"]
    assert not server.client.seen


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "hi", "mood": 1}]}, "messages[0].mood"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "max_completion_tokens"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"store": True}, "store"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),  # no such template
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
    ],
)
def test_of_a_conversation_too(server: Running, change: dict[str, Any], param: str) -> None:
    response = server.post("/v1/chat/completions", {**CHAT, **change})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param, response.text
    assert not server.client.seen


def test_null_is_not_given(server: Running) -> None:
    body = dict.fromkeys(("temperature", "stop", "tools", "store", "n", "logit_bias", "stream"))
    assert server.post("/v1/chat/completions", {**CHAT, **body}).status_code == 200


def test_a_value_that_asks_for_nothing_special_is_taken(server: Running) -> None:
    body = {"prompt": "hi", "suffix": "", "best_of": 1, "store": False, "service_tier": "auto"}
    assert server.post("/v1/completions", body).status_code == 200


@pytest.mark.parametrize("how", ["header", "field"])
def test_a_lenient_caller_learns_what_was_ignored(server: Running, how: str) -> None:
    body = {"prompt": "hi", "colour": 1, "suffix": "!", "stream_options": {"x": 1}}
    headers = {"X-Pellucid-Lenient": "true"} if how == "header" else {}
    if how == "field":
        body["lenient"] = True
    response = server.post("/v1/completions", body, headers=headers)
    assert response.status_code == 200, response.text
    ignored = response.json()["ignored_fields"]
    assert sorted(ignored) == ["colour", "stream_options.x", "suffix"]
    assert sorted(response.headers["X-Pellucid-Ignored"].split(", ")) == sorted(ignored)
    streamed = server.post("/v1/completions", {**body, "stream": True}, headers=headers)
    first = json.loads(streamed.text.split("\n")[0].removeprefix("data: "))
    assert sorted(first["ignored_fields"]) == sorted(ignored)


def test_leniency_does_not_cover_wrong_values(server: Running) -> None:
    body = {"prompt": "hi", "colour": 1, "temperature": "hot", "lenient": True}
    response = server.post("/v1/completions", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "temperature"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"[]",
        b"7",
        b'{"prompt": "hi"',
        b'{"prompt": NaN}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\xff"}',
        b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt": "hi", "seed": 1' + b"0" * 6000 + b"}",
    ],
)
def test_a_body_that_is_no_request_is_one_error(server: Running, body: bytes) -> None:
    response = server.http.post("/v1/completions", content=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": [0.5] * 3000}),
        ("/v1/completions", {"prompt": [[]] * 3000 + [5]}),
        ("/v1/completions", {"prompt": "x", "stop": [""] * 3000}),
        ("/v1/completions", {"prompt": "x", "stop_token_ids": [-1] * 3000}),
        ("/v1/completions", {"prompt": "x", "logit_bias": dict.fromkeys(map(str, range(20_000)))}),
        ("/v1/completions", dict.fromkeys(map(str, range(20_000)), 1)),
        ("/v1/chat/completions", {"messages": [{"role": "user"}] * 3000}),
        ("/v1/chat/completions", {**CHAT, "tools": [{}] * 3000}),
        ("/v1/responses", {"input": [{"type": "x"}] * 3000}),
        ("/v1/messages", {"messages": [{}] * 3000, "max_tokens": 1}),
        ("/v1/embeddings", {"input": [None] * 3000}),
        ("/detokenize", {"tokens": ["x"] * 3000}),
    ],
)
def test_errors_are_not_gathered_by_the_thousand(path: str, body: dict[str, Any]) -> None:
    """Each would cost microseconds and a kilobyte, and a body has room for a million."""
    with pytest.raises(ValidationError) as caught:
        REQUESTS[path].model_validate(body)
    assert caught.value.error_count() < 20


def test_a_list_of_costly_things_is_bounded(server: Running) -> None:
    messages = CHAT["messages"] * 5000
    error = server.post("/v1/chat/completions", {"messages": messages}).json()["error"]
    assert error["param"] == "messages" and "4096" in error["message"]


@settings(max_examples=60)
@given(data=st.data(), path=st.sampled_from(sorted(REQUESTS)))
def test_whatever_comes_is_read_or_refused_with_a_message(data: Any, path: str) -> None:
    """Any JSON object, with names that the model knows: a model, or an `ApiError` with status 400
    whose message is one line."""
    model = REQUESTS[path]
    names = st.sampled_from(sorted(model.model_fields)) | st.text(max_size=5)
    given_ = data.draw(st.dictionaries(names, json_values, max_size=5))
    try:
        read = validate(given_, model, lenient=data.draw(st.booleans()))
    except ApiError as error:
        assert error.status == 400
        assert error.message and "\n" not in error.message.replace(repr(given_), "")
    else:
        assert isinstance(read.asked, model)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"prompt": "a", "seed": 1, "seed": 2}', "seed"),
        ('{"prompt": "a", "seed": 1, "s\\u0065ed": 1}', "seed"),
        ('{"prompt": "\\"a\\": 1", "logit_bias" : {"5" : 1, "5"\n:\t2}}', "5"),
        ('{"prompt": "a", "structured_outputs": {"json": {"type": {}, "type": 1}}}', "type"),
    ],
)
def test_a_name_twice_in_one_object_is_refused(server: Running, body: str, name: str) -> None:
    """One of its values would be ignored."""
    response = server.http.post("/v1/completions", content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == name and "twice" in error["message"]


@given(json_values.filter(lambda value: "Infinity" not in json.dumps(value)))  # no JSON
def test_names_that_are_there_once_are_read(value: Any) -> None:
    """Whatever looks like a name inside a text, and whichever other objects have it too."""
    data = {"a": value, "b": [{"a": value, "c": '"a": "a":'}, {"a": json.dumps(value)}]}
    for ascii_only in (True, False):
        text = json.dumps(data, ensure_ascii=ascii_only)
        assert json_object(text.encode("utf-8", "surrogatepass"), "it") == data


def test_more_names_than_are_looked_at(server: Running) -> None:
    objects = ",".join(['{"a":1}'] * (MOST_KEYS_IN_ALL + 1))
    response = server.http.post("/v1/completions", content=f'{{"prompt": [{objects}]}}')
    assert response.status_code == 400 and str(MOST_KEYS_IN_ALL) in response.text


@pytest.mark.parametrize(
    ("value", "most"), [('"a"', MOST_STRINGS), ("[]", MOST_OBJECTS), ("{}", MOST_OBJECTS)]
)
def test_more_values_than_are_read(value: str, most: int) -> None:
    """Refused by their number, before any is made."""
    inside = ",".join([value] * most)
    with pytest.raises(ApiError, match=f"at most {most} are read"):
        json_object(f'{{"a": [{inside}, {value}]}}'.encode(), "it")
    text = json.dumps({"a": inside + '\\"[{' * most})
    assert json_object(text.encode(), "it") == json.loads(text)  # of a text they are none


def test_large_bodies_are_read_one_at_a_time_and_small_ones_meanwhile(server: Running) -> None:
    lock = server.app.state.service.large_bodies
    server.call(lambda: asyncio.ensure_future(lock.acquire()))
    server.until(lock.locked)  # as while another is read
    large = {"prompt": "a", "user": "b", "stop": ["c" * (1 << 19)]}
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(server.post, "/v1/completions", large)
        server.until(lambda: bool(lock._waiters))
        assert server.post("/v1/completions", {"prompt": "a"}).status_code == 200
        assert not waiting.done()
        server.call(lock.release)
        response = waiting.result()
    assert response.status_code == 400 and response.json()["error"]["param"] == "stop[0]"
    assert not lock.locked()


def test_a_large_body_has_fewer_fields_that_may_be_ignored(server: Running) -> None:
    """Each may be looked for through all of the body."""
    unknown = {"role": "user", "content": "hi", "zz": 1}
    for count, size, status in ((40, 1, 200), (8, 1 << 19, 200), (9, 1 << 19, 400)):
        body = {"messages": [unknown] * count, "lenient": True, "stop": "c", "zz": "x" * size}
        response = server.post("/v1/chat/completions", body)
        assert response.status_code == status, response.text[:200]
        if status == 200:
            assert len(response.json()["ignored_fields"]) == count + 1
        else:
            assert response.json()["error"]["param"] == "messages[8].zz"


class Compared(str):
    """A name that counts what it is compared with."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_name_that_is_there_twice_is_found_by_one_look_at_each() -> None:
    """Each looked for among all before it, a megabyte of names held the server up for minutes."""
    names = [Compared(f"{number}") for number in range(3000)]
    Compared.comparisons = 0
    with pytest.raises(ApiError) as caught:
        _once_each("it", [(name, 0) for name in [*names, Compared("2998")]])
    assert caught.value.param == "2998"
    assert Compared.comparisons < 2 * len(names)


NAMED = {"messages": [{"role": "user", "content": "hi", "name": "ada"}]}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_a_name_that_the_template_does_not_read_is_refused(server: Running, path: str) -> None:
    response = server.post(path, NAMED)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].name"
    response = server.post(path, {**NAMED, "lenient": True})
    assert response.status_code == 200
    assert response.json()["ignored_fields"] == ["messages[0].name"]
    assert response.headers["x-pellucid-ignored"] == "messages[0].name"


def test_a_path_with_a_slash_too_many_is_none(server: Running) -> None:
    response = server.post("/v1/completions/", {"prompt": "a"})
    assert response.status_code == 404 and response.json()["error"]["code"] == "not_found"
