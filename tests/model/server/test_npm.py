"""npm's openai client on the default model behind a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import openai
import pytest

from tests.python.server.running import Running

SCRIPT = Path(__file__).with_name("npm_openai.mjs")
MESSAGES = [{"role": "user", "content": "Name three rivers."}]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script beside the client that it imports."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "openai@6"]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if installed.returncode:
        pytest.skip(f"npm cannot install its openai package: {installed.stderr.strip()[-200:]}")
    return Path(shutil.copy(SCRIPT, folder))


def test_npms_client(script: Path, smollm2: Running, smollm2_with_tools: Running) -> None:
    urls = [f"{server.url}/v1" for server in (smollm2, smollm2_with_tools)]
    ran = subprocess.run(["node", script, *urls], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    client = openai.OpenAI(base_url=urls[0], api_key="none", max_retries=0)
    asked = {"model": "tiny", "temperature": 0, "max_tokens": 24}
    chat = client.chat.completions.create(messages=MESSAGES, **asked)  # type: ignore[call-overload]
    assert found["models"] == ["tiny", "alias"]
    assert found["chat"]["text"] == found["streamed"]["text"] == chat.choices[0].message.content
    for usage in (found["chat"]["usage"], found["streamed"]["usage"]):
        assert usage["completion_tokens"] == 24
        assert usage["prompt_tokens"] == chat.usage.prompt_tokens
    completion = client.completions.create(prompt="One two three", **asked)
    assert found["completion"] == completion.choices[0].text
    assert found["formed"]["name"] in ("Rhine", "Elbe")
    assert found["call"] == {"name": "weather", "keys": ["city"], "finish": "tool_calls"}
    assert found["response"]["text"]
    assert {"response.created", "response.output_text.delta"} <= set(found["response"]["kinds"])
    assert found["embeddings"] == [576, 576]
    assert found["errors"] == [
        {"kind": "BadRequestError", "status": 400, "param": "store"},
        {"kind": "NotFoundError", "status": 404, "param": "model"},
    ]
