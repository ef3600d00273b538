"""What responses look like, read by the official clients' own types; streamed and whole agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.python.server.running import Running, events_of

MESSAGES = [{"role": "user", "content": "hi"}]
TEXT = "Été ✅ ok"


def chunks_of(server: Running, path: str, body: Any) -> list[dict[str, Any]]:
    lines = events_of(server.post(path, {**body, "stream": True}))
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("prompt", ["Été à Zürich:", [195, 137, 116, 32, 58]])
def test_a_completion_with_logprobs(server: Running, prompt: Any, echo: bool) -> None:
    server.client.script = lambda request, index: TEXT
    body = {"prompt": prompt, "logprobs": 3, "max_tokens": 30, "echo": echo}
    whole = server.post("/v1/completions", body).json()
    if not echo:  # the client's types know no null at a prompt's first token
        Completion.model_validate(whole, strict=True)
    choice = whole["choices"][0]
    logprobs = choice["logprobs"]
    streamed = [c["choices"][0] for c in chunks_of(server, "/v1/completions", body)]
    assert "".join(c["text"] for c in streamed) == choice["text"]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [x for c in streamed for x in (c["logprobs"] or {}).get(name, [])] == logprobs[name]
    text = choice["text"]
    assert (
        text == ("" if not echo else "Été à Zürich:" if isinstance(prompt, str) else "Ét :") + TEXT
    )
    offsets = logprobs["text_offset"]
    assert offsets == sorted(offsets)
    for token, offset in zip(logprobs["tokens"][:-1], offsets, strict=False):
        if token.startswith("bytes:"):
            data = bytes(int(part, 16) for part in token.split("\\x")[1:])
            assert data in text[offset].encode()
        else:
            assert text[offset:].startswith(token)
    assert (logprobs["token_logprobs"][0] is None) == echo
    assert (logprobs["top_logprobs"][0] is None) == echo
    assert all(len(top) <= 4 for top in logprobs["top_logprobs"] if top)
    assert logprobs["tokens"][-1] == "<|im_end|>" and offsets[-1] == len(text)


def test_a_prompt_can_be_scored_alone(server: Running) -> None:
    body = {"prompt": "abc", "echo": True, "logprobs": 1, "max_tokens": 0}
    for answer in (
        server.post("/v1/completions", body).json(),
        chunks_of(server, "/v1/completions", body)[-1],
    ):
        choice = answer["choices"][0]
        assert choice["text"] == "abc" and choice["finish_reason"] == "length"
        assert choice["logprobs"]["token_logprobs"] == [None, -0.98, -0.99]
        assert answer["usage"]["completion_tokens"] == 0


def test_control_tokens_of_a_prompt_are_text_unless_asked(server: Running) -> None:
    body = {"prompt": "a<|im_end|>b", "echo": True, "logprobs": 0, "max_tokens": 1}
    plain = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]
    assert 259 not in server.client.seen[-1].prompt_token_ids
    choice = server.post("/v1/completions", {**body, "parse_special": True}).json()["choices"][0]
    assert server.client.seen[-1].prompt_token_ids == (97, 259, 98)
    assert choice["text"] == "a<|im_end|>bH"
    assert choice["logprobs"]["tokens"][:3] == ["a", "<|im_end|>", "b"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 11, 12]
    assert plain["text_offset"] == list(range(13))


def test_echo_without_logprobs(server: Running) -> None:
    body = {"prompt": ["ab", "cd"], "echo": True, "n": 2}
    choices = server.post("/v1/completions", body).json()["choices"]
    assert [c["text"] for c in choices] == [
        prompt + "Hello, world." for prompt in ("ab", "ab", "cd", "cd")
    ]


def test_a_chat_completion_with_logprobs(server: Running) -> None:
    server.client.script = lambda request, index: TEXT
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2, "n": 2}
    whole = server.post("/v1/chat/completions", body).json()
    ChatCompletion.model_validate(whole, strict=True)
    chunks = chunks_of(server, "/v1/chat/completions", body)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    for choice in whole["choices"]:
        content = choice["logprobs"]["content"]
        assert bytes(b for entry in content for b in entry["bytes"]).decode() == TEXT
        assert all(len(entry["top_logprobs"]) == 2 for entry in content)
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in mine) == TEXT
        assert [e for c in mine for e in (c["logprobs"] or {}).get("content", [])] == content


def test_logprobs_speak_of_what_is_shown(server: Running) -> None:
    """A stop string takes the tokens with it that begin in it."""
    server.client.script = lambda request, index: "abcdef"
    body = {"messages": MESSAGES, "logprobs": True, "stop": ["de"]}
    whole = server.post("/v1/chat/completions", body).json()["choices"][0]
    assert [entry["token"] for entry in whole["logprobs"]["content"]] == ["a", "b", "c"]
    chunks = chunks_of(server, "/v1/chat/completions", body)
    entries = [e for c in chunks for e in (c["choices"][0]["logprobs"] or {}).get("content", [])]
    assert entries == whole["logprobs"]["content"]


def test_token_ids_are_given_when_asked(server: Running) -> None:
    ids = [*b"Hello, world.", 259]
    for path, body in (
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
    ):
        body = {**body, "return_token_ids": True, "max_tokens": 50}
        whole = server.post(path, body).json()
        chunks = chunks_of(server, path, body)
        assert whole["choices"][0]["token_ids"] == ids
        assert [t for c in chunks for t in c["choices"][0].get("token_ids", ())] == ids
        prompts = [list(server.client.seen[-1].prompt_token_ids)]
        if path == "/v1/completions":
            assert whole["choices"][0]["prompt_token_ids"] == prompts[0]
            found = [c["choices"][0] for c in chunks]
        else:
            assert whole["prompt_token_ids"] == prompts[0]
            found = chunks
        assert [c["prompt_token_ids"] for c in found if "prompt_token_ids" in c] == prompts
    assert "token_ids" not in server.post("/v1/completions", {"prompt": "hi"}).text


def test_a_response_and_its_events(server: Running) -> None:
    body = {"input": "hi", "instructions": "Be kind.", "metadata": {"a": "b"}, "top_logprobs": 1}
    whole = server.post("/v1/responses", body).json()
    response = Response.model_validate(whole)
    assert response.output_text == "Hello, world." and response.status == "completed"
    assert "Be kind." in (server.client.seen[-1].prompt or "")
    assert response.usage is not None and response.usage.input_tokens_details.cached_tokens == 3
    events = chunks_of(server, "/v1/responses", body)
    reader: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    kinds = [reader.validate_python(event).type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == events[-4]["text"] == "Hello, world."
    last = events[-1]["response"]
    strip = ("id", "created_at", "timings")
    for item in (last, whole):
        item["output"][0].pop("id")
        for name in strip:
            item.pop(name)
    assert last == whole


def test_a_response_that_is_cut_says_so(server: Running) -> None:
    body = {"input": [{"role": "user", "content": "hi"}], "max_output_tokens": 3}
    whole = server.post("/v1/responses", body).json()
    assert (whole["status"], whole["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert whole["output"][0]["status"] == "incomplete"
    events = chunks_of(server, "/v1/responses", body)
    assert events[-1]["type"] == "response.incomplete"
    assert chunks_of(server, "/v1/responses", {"input": "hi", "max_output_tokens": 99})[-1][
        "type"
    ] == ("response.completed")


def test_a_conversation_of_responses_is_laid_out(server: Running) -> None:
    items = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]},
        {"role": "user", "content": "v"},
    ]  # fmt: skip
    assert server.post("/v1/responses", {"input": items}).status_code == 200
    prompt = server.client.seen[-1].prompt
    assert prompt == (
        "<|im_start|>system\nd<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
        "<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_message_and_its_events(server: Running) -> None:
    body = {
        "model": "tiny",
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": MESSAGES,
        "max_tokens": 99,
        "stop_sequences": ["wor"],
    }
    whole = server.post("/v1/messages", body).json()
    message = Message.model_validate(whole)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "wor")
    assert whole["content"] == [{"type": "text", "text": "Hello, "}]
    n_prompt = len(server.client.seen[-1].prompt_token_ids)
    assert whole["usage"]["input_tokens"] == n_prompt - 3
    assert whole["usage"]["cache_read_input_tokens"] == 3
    events = chunks_of(server, "/v1/messages", body)
    reader: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    for event in events:
        reader.validate_python(event)
    assert [e["type"] for e in (*events[:2], *events[-3:])] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "wor"}
    assert events[-2]["usage"] == whole["usage"]
    count = server.post(
        "/v1/messages/count_tokens", {k: body[k] for k in ("system", "messages")}
    ).json()
    assert count == {"input_tokens": n_prompt}


def test_an_assistants_message_at_the_end_is_gone_on_with(server: Running) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "I think"}]
    assert server.post("/v1/messages", {"messages": messages, "max_tokens": 9}).status_code == 200
    assert (server.client.seen[-1].prompt or "").endswith("assistant\nI think")
    body = {"messages": messages, "continue_final_message": True}
    assert server.post("/v1/chat/completions", body).status_code == 200
    assert (server.client.seen[-1].prompt or "").endswith("assistant\nI think")
    body |= {"add_generation_prompt": True}
    assert server.post("/v1/chat/completions", body).status_code == 400


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings(server: Running, form: str) -> None:
    body = {"input": ["a", "bcd"], "encoding_format": form}
    found = server.post("/v1/embeddings", body).json()
    if form == "float":
        CreateEmbeddingResponse.model_validate(found, strict=True)
        assert found["data"][1]["embedding"] == [3.0, 0.5, 0.0, -1.0]
    cached = {"prompt_tokens_details": {"cached_tokens": 0}}
    assert found["usage"] == {"prompt_tokens": 4, "total_tokens": 4, **cached}
    timings = found["timings"]
    assert (timings["prompt_n"], timings["cache_n"], timings["predicted_n"]) == (4, 0, 0)
    assert (timings["queue_time_ms"], timings["prompt_ms"], timings["total_ms"]) == (1, 10, 11)
    assert (timings["predicted_ms"], timings["mean_itl_ms"]) == (0, 0)
    assert [item["index"] for item in found["data"]] == [0, 1]
    assert server.post("/v1/embeddings", {"input": "a", "dimensions": 4}).status_code == 200
    wrong = server.post("/v1/embeddings", {"input": "a", "dimensions": 2})
    assert wrong.json()["error"]["param"] == "dimensions"
    assert server.post("/v1/embeddings", {"input": ""}).json()["error"]["param"] == "input"


def test_tokens_there_and_back(server: Running) -> None:
    text = "Été <|im_end|>"
    found = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    assert found["count"] == len(found["tokens"]) == len(text.encode())
    assert found["token_strs"][0] == "bytes:\\xc3"
    assert server.post("/tokenize", {"content": text}).json()["tokens"] == found["tokens"]
    back = server.post("/detokenize", {"tokens": found["tokens"]}).json()
    assert back["prompt"] == back["content"] == text
    special = server.post("/tokenize", {"prompt": text, "parse_special": True}).json()
    assert special["tokens"][-1] == 259
    chat = server.post("/tokenize", {"messages": MESSAGES}).json()["tokens"]
    server.post("/v1/chat/completions", {"messages": MESSAGES})
    assert chat == list(server.client.seen[-1].prompt_token_ids)
    for body in ({}, {"prompt": "a", "messages": MESSAGES}, {"prompt": "a", "tools": []}):
        assert server.post("/tokenize", body).status_code == 400
    wrong = server.post("/detokenize", {"tokens": [999]}).json()["error"]
    assert wrong["param"] == "tokens"


def test_seeds_and_parameters_reach_the_engine(server: Running) -> None:
    body = {
        "prompt": "hi", "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "seed": 7,
        "repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.3, "n": 2,
        "logit_bias": {"65": -100}, "ignore_eos": True, "min_tokens": 2, "max_tokens": 4,
        "stop_token_ids": [66], "skip_special_tokens": False, "user": "u",
    }  # fmt: skip
    assert server.post("/v1/completions", body).status_code == 200
    request = server.client.seen[-1]
    for name in set(body) - {"prompt", "user", "logit_bias", "stop_token_ids"}:
        assert getattr(request.params, name) == body[name], name
    assert request.params.logit_bias == {65: -100.0}
    assert request.params.stop_token_ids == (66,)
    assert request.seed == 7
    server.post("/v1/completions", {"prompt": "hi", "seed": -1})
    server.post("/v1/completions", {"prompt": "hi"})
    drawn = [r.seed for r in server.client.seen[-2:]]
    assert -1 not in drawn and len(set(drawn)) == 2


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("completions", {"prompt": "hi"}),
        ("chat/completions", {"messages": MESSAGES}),
        ("responses", {"input": "hi"}),
        ("messages", {"messages": MESSAGES, "max_tokens": 9}),
    ],
)
def test_a_request_opts_out_of_guesses(server: Running, route: str, body: dict[str, Any]) -> None:
    for wanted, expected in (({}, True), ({"speculative": False}, False)):
        assert server.post(f"/v1/{route}", {**body, **wanted}).status_code == 200
        assert server.client.seen[-1].params.speculative is expected
    refused = server.post(f"/v1/{route}", {**body, "speculative": "no"})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error.get("param", error["message"].partition(":")[0]) == "speculative", error


@pytest.mark.parametrize(
    ("form", "field", "value"),
    [
        ({"type": "text"}, None, None),
        ({"type": "json_object"}, "json_object", True),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}},
            "json",
            '{"type":"integer"}',
        ),
    ],
)
def test_a_form_for_the_answer_reaches_the_engine(
    server: Running, form: Any, field: str | None, value: Any
) -> None:
    body = {"messages": MESSAGES, "response_format": form}
    assert server.post("/v1/chat/completions", body).status_code == 200
    structured = server.client.seen[-1].params.structured_outputs
    assert (structured and getattr(structured, field or "")) == value
    flat = {"type": form["type"], **form.get("json_schema", {})}
    assert server.post("/v1/responses", {"input": "x", "text": {"format": flat}}).status_code == 200
    assert server.client.seen[-1].params.structured_outputs == structured


def test_a_developer_is_the_system_where_the_template_knows_no_other(server: Running) -> None:
    messages = [{"role": "developer", "content": "d"}, *MESSAGES]
    server.post("/v1/chat/completions", {"messages": messages})
    assert (server.client.seen[-1].prompt or "").startswith("<|im_start|>system\nd")
