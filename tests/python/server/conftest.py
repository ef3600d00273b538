from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.python.engine.tiny import write_model
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

TOOLS_TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }} call with <tool_call>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def make_fake(tiny_path: Path) -> Callable[..., FakeClient]:
    def make(*arguments: Any, **options: Any) -> FakeClient:
        return FakeClient(tiny_path, *arguments, **options)

    return make


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Servers that end with the test."""
    running: list[Running] = []

    def start(*arguments: Any, **options: Any) -> Running:
        running.append(Running(*arguments, **options))
        return running[-1]

    yield start
    for server in running:
        server.close()


@pytest.fixture(scope="session")
def _shared(tiny_path: Path) -> Iterator[Running]:
    running = Running(FakeClient(tiny_path))
    yield running
    running.close()


@pytest.fixture
def server(_shared: Running) -> Running:
    """A server that says "Hello, world."; one for all tests, each beginning anew."""
    _shared.call(_shared.client.reset)
    return _shared
