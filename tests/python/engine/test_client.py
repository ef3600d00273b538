"""What a server meets: an engine behind `EngineClient`."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from pellucid import LLM, AsyncLLM, BadInput, SamplingParams
from pellucid.engine.client import EngineClient, LocalClient
from pellucid.engine.conversation import Layout
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
