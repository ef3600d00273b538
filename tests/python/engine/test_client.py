"""What a server meets: an engine behind `EngineClient`."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path

import pytest

from pellucid import LLM, AsyncLLM, BadInput, PromptTooLong, SamplingParams
from pellucid.engine.client import EngineClient, LocalClient
from pellucid.engine.conversation import Layout
from pellucid.engine.lanes import WIDTHS
from pellucid.engine.process.client import ProcessClient
from tests.python.engine.conftest import DEFAULTS

PARAMS = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, logprobs=1)
HELLO = [{"role": "user", "content": "hello"}]


def test_a_client_serves_prompts_and_conversations(tiny_path: Path, llm: LLM) -> None:
    async def scene(client: EngineClient) -> None:
        assert client.model.max_model_len == llm.max_model_len
        assert client.model.has_chat_template
        for prompt in "hello", {"prompt": "hello"}, [1, 2, 3], {"prompt_token_ids": [1, 2, 3]}:
            stream = await client.stream(prompt, PARAMS)
            increments = [increment async for increment in stream]
            assert stream.output().outputs == llm.generate(prompt, PARAMS)[0].outputs
            assert pickle.loads(pickle.dumps(increments)) == increments  # noqa: S301 - our own
        stream = await client.stream(HELLO, PARAMS, request_id="talk")
        assert stream.request_id == "talk"
        assert stream.prompt_token_ids == await client.chat_token_ids(HELLO)
        async for _ in stream:
            pass
        assert stream.output().outputs == llm.chat(HELLO, PARAMS)[0].outputs
        bare = Layout(add_generation_prompt=False)
        assert len(await client.chat_token_ids(HELLO, bare)) < len(stream.prompt_token_ids)
        with pytest.raises(BadInput, match="3000 tokens and the context"):
            await client.stream("x" * 3000, PARAMS)
        await client.abort("nobody")
        await client.check_health()
        stats = await client.stats()
        assert (stats.running_sequences, stats.requests_ended) == (0, 5)
        assert pickle.loads(pickle.dumps((stats, client.model))) == (stats, client.model)  # noqa: S301
        await client.close()
        with pytest.raises(BadInput, match="closed"):
            await client.check_health()

    asyncio.run(scene(LocalClient(AsyncLLM(tiny_path, **DEFAULTS))))


@pytest.mark.parametrize("apart", [False, True])
def test_a_short_request_waits_for_no_long_text(tiny_path: Path, apart: bool) -> None:
    """Neither a prompt, a conversation, an embedding nor a count of tokens."""

    async def scene() -> None:
        client: EngineClient
        if apart:
            client = await ProcessClient.start(tiny_path, **DEFAULTS)
        else:
            client = LocalClient(AsyncLLM(tiny_path, **DEFAULTS))
        end = threading.Event()
        long = [
            asyncio.ensure_future(client.lanes.run(WIDTHS[-1] + 1, end.wait)) for _ in range(10)
        ]
        try:
            for prompt in "hello", HELLO, "x" * 90:
                stream = await client.stream(prompt, PARAMS)
                assert [increment async for increment in stream]
            assert await client.chat_token_ids(HELLO)
            assert (await client.embed("hello")).embedding
            with pytest.raises(PromptTooLong, match=r"[0-9]{4} tokens"):
                await client.stream("x" * 9000, PARAMS)
        finally:
            end.set()
        await asyncio.gather(*long)
        with pytest.raises(PromptTooLong, match=r"at least [0-9]+ tokens and the context holds 96"):
            await client.stream("x" * (WIDTHS[-1] + 1), PARAMS)
        with pytest.raises(PromptTooLong, match=r"at least [0-9]+ tokens and the context holds 96"):
            await client.embed("x" * (WIDTHS[-1] + 1))
        with pytest.raises(PromptTooLong, match=r"at least [0-9]+ tokens and the context holds 96"):
            await client.stream([{**HELLO[0], "content": "x" * (WIDTHS[-1] + 1)}], PARAMS)
        await client.close()

    asyncio.run(asyncio.wait_for(scene(), 120))
