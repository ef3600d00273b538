from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid import AsyncLLM
from pellucid.engine.client import LocalClient
from tests.python.server.conftest import TOOLS_TEMPLATE
from tests.python.server.running import Running


def serve(path: Path, **arguments: object) -> tuple[Running, AsyncLLM]:
    llm = AsyncLLM(path, threads=1, **arguments)
    return Running(LocalClient(llm)), llm


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[Running]:
    """The default model behind a real server."""
    running, llm = serve(smollm2_path, max_model_len=2048, max_num_seqs=8)
    yield running
    running.close()
    llm.close()


@pytest.fixture(scope="session")
def smollm2_with_tools(smollm2_path: Path) -> Iterator[Running]:
    """The same, under a template that lays out tools as Hermes does."""
    template = TOOLS_TEMPLATE.replace("tools:", "<|im_start|>system\ntools:").replace(
        "<tool_call>\n", "<tool_call><|im_end|>\n", 1
    )
    running, llm = serve(smollm2_path, max_model_len=2048, max_num_seqs=4, chat_template=template)
    yield running
    running.close()
    llm.close()
