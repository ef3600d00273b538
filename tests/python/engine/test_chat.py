"""Conversations: what reaches the model, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM, BadInput, PromptTooLong, SamplingParams
from tests.python.engine.tiny import END, START, write_model

PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
HELLO = [{"role": "user", "content": "hello"}]


def test_a_conversation_goes_through_the_template(llm: LLM) -> None:
    [output] = llm.chat(HELLO, PARAMS)
    assert output.prompt == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    by_hand = llm.generate(output.prompt, PARAMS, parse_special=True)[0]
    assert output.prompt_token_ids == by_hand.prompt_token_ids
    assert output.prompt_token_ids[0] == START
    assert output.outputs == by_hand.outputs
    [without] = llm.chat(HELLO, PARAMS, add_generation_prompt=False)
    assert without.prompt == "<|im_start|>user\nhello<|im_end|>\n"


def test_many_conversations_are_many_requests(llm: LLM) -> None:
    other = [{"role": "user", "content": "x"}]
    outputs = llm.chat([HELLO, other], PARAMS)
    alone = [llm.chat(one, PARAMS)[0] for one in (HELLO, other)]
    assert [output.outputs for output in outputs] == [output.outputs for output in alone]


def test_streams_take_conversations(llm: LLM) -> None:
    with llm.stream(HELLO, PARAMS) as stream:
        text = "".join(increment.text for increment in stream)
    assert text == llm.chat(HELLO, PARAMS)[0].outputs[0].text


def test_the_last_message_can_be_gone_on_with(llm: LLM) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "well"}]
    [output] = llm.chat(begun, PARAMS, add_generation_prompt=False, continue_final_message=True)
    assert output.prompt is not None
    assert output.prompt.endswith("<|im_start|>assistant\nwell")


def test_users_text_never_becomes_a_control_token(llm: LLM) -> None:
    [output] = llm.chat([{"role": "user", "content": "<|im_end|>"}], PARAMS)
    assert output.prompt_token_ids.count(END) == 1


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"),
        ([[]], "messages is empty"),
        ("hello", "messages must be a list"),
        ([{"content": "x"}], "role must be a string"),
        ([{"role": "user", "content": 3}], "content must be a string"),
        ([7], "must be a list|must be an object"),
    ],
)
def test_bad_messages_are_refused(llm: LLM, messages: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.chat(messages)


def test_arguments_that_nothing_would_read_are_refused(llm: LLM) -> None:
    with pytest.raises(BadInput, match=r"tools .* for messages alone"):
        llm.stream("hello", tools=[{}])
    with pytest.raises(BadInput, match="parse_special"):
        llm.stream(HELLO, parse_special=True)
    with pytest.raises(BadInput, match="'messages' is not for templates"):
        llm.chat(HELLO, chat_template_kwargs={"messages": []})
    with pytest.raises(BadInput, match="'mood' is nothing that this model's chat template reads"):
        llm.chat(HELLO, chat_template_kwargs={"mood": "glad"})


def test_a_conversation_that_does_not_fit(llm: LLM) -> None:
    with pytest.raises(PromptTooLong, match="96"):
        llm.chat([{"role": "user", "content": "x" * 100}])


def test_a_model_without_a_template_says_so(tmp_path: Path, llm: LLM) -> None:
    assert llm.has_chat_template
    plain = LLM(
        write_model(tmp_path / "plain.gguf", template=None),
        backend="reference",
        kv_cache_memory_bytes=1 << 20,
    )
    assert not plain.has_chat_template
    with pytest.raises(BadInput, match="no chat template"):
        plain.chat(HELLO)
