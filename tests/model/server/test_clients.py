"""The official clients on the default model behind a real server: every endpoint and option."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import anthropic
import numpy as np
import openai
import pytest

from tests.python.server.running import Running

MESSAGES: list[Any] = [{"role": "user", "content": "Name three rivers."}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def client(smollm2: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{smollm2.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def caller(smollm2_with_tools: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{smollm2_with_tools.url}/v1", api_key="none", max_retries=0)


def greedy(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "temperature": 0, "max_tokens": 24, **more}


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "alias"]
    assert client.models.retrieve("alias").id == "alias"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_chat_streamed_and_not_and_by_many_at_once(client: openai.OpenAI, smollm2: Running) -> None:
    """Every way of asking gives the same bytes."""
    whole = client.chat.completions.create(messages=MESSAGES, **greedy())
    expected = whole.choices[0].message.content
    assert expected and whole.choices[0].finish_reason == "length"
    assert whole.usage is not None and whole.usage.completion_tokens == 24
    assert whole.usage.prompt_tokens_details is not None
    stream = client.chat.completions.create(
        messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **greedy()
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == expected
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 24
    timings = chunks[-1].to_dict()["timings"]
    assert timings["predicted_n"] == 24 and timings["time_to_first_token_ms"] > 0  # type: ignore[index]

    async def many() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{smollm2.url}/v1", api_key="none") as there:

            async def one() -> str:
                text = ""
                async for chunk in await there.chat.completions.create(
                    messages=MESSAGES, stream=True, **greedy()
                ):
                    text += chunk.choices[0].delta.content or ""
                return text

            return await asyncio.gather(*(one() for _ in range(12)))

    assert asyncio.run(many()) == [expected] * 12


def test_a_prompt_that_was_read_is_found_in_the_cache_of_its_salt(client: openai.OpenAI) -> None:
    text = "There once was a river that " * 12

    def cached(salt: str) -> int:
        answer = client.completions.create(
            prompt=text, extra_body={"cache_salt": salt}, **greedy(max_tokens=1)
        )
        assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
        timings: Any = answer.to_dict()["timings"]
        found = answer.usage.prompt_tokens_details.cached_tokens or 0
        assert timings["cache_n"] == found
        assert timings["prompt_n"] == answer.usage.prompt_tokens - found
        return found

    assert cached("a") == 0
    assert cached("a") >= 48
    assert cached("b") == 0


def test_n_seeds_and_log_probabilities(client: openai.OpenAI) -> None:
    def ask(seed: int | None) -> Any:
        return client.chat.completions.create(
            messages=MESSAGES, model="tiny", max_tokens=8, n=3, seed=seed, temperature=1.0,
            logprobs=True, top_logprobs=4,
        )  # fmt: skip

    first, again, other = ask(7), ask(7), ask(-1)
    texts = [[choice.message.content for choice in answer.choices] for answer in (first, again)]
    assert texts[0] == texts[1] and len(set(texts[0])) > 1
    assert texts[0] != [choice.message.content for choice in other.choices]
    for choice in first.choices:
        entries = choice.logprobs.content
        data = b"".join(bytes(entry.bytes) for entry in entries)
        assert data.decode() == choice.message.content
        for entry in entries:
            assert len(entry.top_logprobs) == 4
            assert entry.logprob <= entry.top_logprobs[0].logprob <= 0


def test_penalties_bias_filters_and_stops(client: openai.OpenAI) -> None:
    plain = client.completions.create(prompt="Rivers:", **greedy(logprobs=1))
    logprobs = plain.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens
    ids = client.completions.create(
        prompt="Rivers:", extra_body={"return_token_ids": True}, **greedy()
    ).choices[0].to_dict()["token_ids"]  # fmt: skip
    banned = client.completions.create(
        prompt="Rivers:",
        logit_bias={str(ids[0]): -100},
        **greedy(),  # type: ignore[index]
    )
    assert not banned.choices[0].text.startswith(logprobs.tokens[0])
    forced = client.completions.create(
        prompt="Rivers:",
        logit_bias={str(ids[0]): 100},
        **greedy(max_tokens=4),  # type: ignore[index]
    )
    assert forced.choices[0].text == logprobs.tokens[0] * 4

    def tokens(**change: Any) -> list[int]:
        extra = {"return_token_ids": True, "ignore_eos": True, **change}
        answer = client.completions.create(
            prompt="la la la la la la la la", extra_body=extra, **greedy(max_tokens=12)
        )
        found: Any = answer.choices[0].to_dict()["token_ids"]
        return list(found)

    assert len(set(tokens())) < 12
    for change in ("presence_penalty", "frequency_penalty", "repetition_penalty"):
        assert len(set(tokens(**{change: 50.0}))) == 12, change
    alone = client.completions.create(
        prompt="Rivers:", model="tiny", max_tokens=24, temperature=1.0, extra_body={"top_k": 1}
    )
    assert alone.choices[0].text == plain.choices[0].text
    cut = plain.choices[0].text[5:9]
    stopped = client.completions.create(prompt="Rivers:", stop=[cut], **greedy())
    assert stopped.choices[0].text == plain.choices[0].text.split(cut)[0]
    assert stopped.choices[0].finish_reason == "stop"
    least = client.completions.create(
        prompt="Rivers:", stop=[cut], extra_body={"min_tokens": 24, "ignore_eos": True}, **greedy()
    )
    assert least.usage is not None and least.usage.completion_tokens == 24


def test_echo_gives_the_likelihood_of_a_prompt(client: openai.OpenAI) -> None:
    """What an evaluation harness reads: the same whether generated or given."""
    answer = client.completions.create(prompt="The sky is", **greedy(max_tokens=5, logprobs=2))
    said = answer.choices[0]
    assert said.logprobs is not None
    full = "The sky is" + said.text
    for stream in (False, True):
        found = client.completions.create(
            prompt=full, echo=True, stream=stream, **greedy(max_tokens=1, logprobs=2)
        )
        parts: Any = list(found) if stream else [found]
        choices = [part.choices[0] for part in parts]
        assert "".join(choice.text for choice in choices).startswith(full)
        tokens = [t for c in choices if c.logprobs for t in c.logprobs.tokens]
        values = [v for c in choices if c.logprobs for v in c.logprobs.token_logprobs]
        assert values[0] is None and len(tokens) == len(values)
        assert tokens[-6:-1] == said.logprobs.tokens
        assert values[-6:-1] == said.logprobs.token_logprobs


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_object"},
        {
            "type": "json_schema",
            "json_schema": {
                "name": "river",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": 9}},
                    "required": ["name"],
                    "additionalProperties": False,
                },
            },
        },
    ],
)
def test_forms(client: openai.OpenAI, form: Any) -> None:
    answer = client.chat.completions.create(
        messages=[{"role": "user", "content": "A river as JSON, short."}],
        response_format=form,
        **greedy(max_tokens=120),
    )
    choice = answer.choices[0]
    if choice.finish_reason == "stop" or form["type"] == "json_schema":
        value = json.loads(choice.message.content or "")
        assert isinstance(value, dict)
        if form["type"] == "json_schema":
            assert list(value) == ["name"]


@pytest.mark.parametrize(
    ("structured", "pattern"),
    [
        ({"regex": "[0-9]{3}-[a-z]{2}"}, r"[0-9]{3}-[a-z]{2}"),
        ({"choice": ["Nile", "Rhine"]}, "Nile|Rhine"),
        ({"grammar": 'start: "<" /[A-C]{2,4}/ ">"'}, "<[A-C]{2,4}>"),
        ({"json": {"type": "integer", "minimum": 10, "maximum": 99}}, "[1-9][0-9]"),
    ],
)
def test_structured_outputs(client: openai.OpenAI, structured: Any, pattern: str) -> None:
    answer = client.chat.completions.create(
        messages=MESSAGES, extra_body={"structured_outputs": structured}, **greedy()
    )
    assert re.fullmatch(pattern, answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_tools_that_must_be_called(caller: openai.OpenAI, choice: Any) -> None:
    ask: Any = {
        "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
        "tools": [TOOL],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        **greedy(max_tokens=80),
    }
    answer = caller.chat.completions.create(**ask)
    assert answer.choices[0].finish_reason == "tool_calls"
    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "function" and call.function.name == "weather"
    assert list(json.loads(call.function.arguments)) == ["city"]
    arguments = name = ""
    pieces = 0
    for chunk in caller.chat.completions.create(stream=True, **ask):
        for delta in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            assert delta.function is not None
            name += delta.function.name or ""
            arguments += delta.function.arguments or ""
            pieces += 1
    assert (name, arguments) == ("weather", call.function.arguments)
    assert pieces > 3
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "Rain."}
    said: Any = answer.choices[0].message
    again = caller.chat.completions.create(
        **{**ask, "messages": [*ask["messages"], said, result], "tool_choice": "none"}
    )
    assert again.choices[0].message.tool_calls is None


def test_responses(client: openai.OpenAI) -> None:
    ask: Any = {
        "model": "tiny",
        "input": "Name a river.",
        "temperature": 0,
        "max_output_tokens": 16,
    }
    whole = client.responses.create(**ask)
    assert whole.output_text and whole.usage is not None
    assert whole.usage.output_tokens == 16 and whole.status == "incomplete"
    with client.responses.stream(**ask) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    assert text == whole.output_text
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(previous_response_id="x", **ask)
    assert caught.value.param == "previous_response_id"


def test_embeddings(client: openai.OpenAI) -> None:
    texts = ["a small river", "a little stream", "double-entry bookkeeping"]
    found = client.embeddings.create(model="tiny", input=texts)  # the client asks for base64
    vectors = np.array([item.embedding for item in found.data])
    assert vectors.shape == (3, 576)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    plain = client.embeddings.create(model="tiny", input=texts[0], encoding_format="float")
    assert np.array_equal(np.float32(plain.data[0].embedding), np.float32(vectors[0]))


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(messages=MESSAGES, store=True, **greedy())
    assert caught.value.param == "store" and caught.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(prompt="x " * 3000, **greedy())
    assert caught.value.code == "context_length_exceeded"


def test_anthropics_client(smollm2: Running) -> None:
    client = anthropic.Anthropic(base_url=smollm2.url, api_key="none", max_retries=0)
    ask: Any = {
        "model": "tiny",
        "max_tokens": 16,
        "messages": MESSAGES,
        "system": "Be brief.",
        "extra_body": {"temperature": 0},
    }
    message = client.messages.create(**ask)
    text = message.content[0]
    assert text.type == "text" and text.text and message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 16
    with client.messages.stream(**ask, stop_sequences=["zzzz"]) as stream:
        streamed = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].type == "text" and final.content[0].text == streamed == text.text
    assert final.usage.output_tokens == 16
    counted = client.messages.count_tokens(model="tiny", messages=MESSAGES, system="Be brief.")
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(**{**ask, "model": "other"})
    assert "not served here" in caught.value.message
