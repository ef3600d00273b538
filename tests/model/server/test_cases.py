"""What went wrong with other servers, each for a kind: the default model, temperature 0."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pellucid import AsyncLLM
from tests.model.server.conftest import serve
from tests.python.server.running import Running, events_of
from tests.python.server.test_streams import leave, text_of

MESSAGES = [{"role": "user", "content": "Say it."}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Say it:"},
    "/v1/chat/completions": {"messages": MESSAGES},
}


def force(text: str) -> dict[str, Any]:
    return {"structured_outputs": {"choice": [text]}, "temperature": 0, "max_tokens": 80}


def said(choice: dict[str, Any]) -> str:
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


@pytest.mark.parametrize("path", ROUTES)
def test_emoji_and_hangul_over_tokens(smollm2: Running, path: str) -> None:
    text = "비빔밥 👩🏽‍🚀 naïve ✅"
    body = {**ROUTES[path], **force(text)}
    body |= {"logprobs": 1} if path == "/v1/completions" else {"logprobs": True, "top_logprobs": 1}
    choice = smollm2.post(path, body).json()["choices"][0]
    assert said(choice) == text
    response = smollm2.post(path, {**body, "stream": True})
    response.content.decode("utf-8")
    assert "\ufffd" not in response.text
    lines = events_of(response)
    assert text_of(path, lines) == text
    assert sum("👩🏽‍🚀" in text_of(path, [line]) for line in lines) == 1
    if path == "/v1/chat/completions":
        chunks = [json.loads(line)["choices"][0] for line in lines[:-1]]
        entries = [e for c in chunks for e in (c["logprobs"] or {}).get("content", [])]
        assert b"".join(bytes(e["bytes"]) for e in entries).decode() == text
        assert entries == choice["logprobs"]["content"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_over_tokens(smollm2: Running, path: str, include: bool) -> None:
    body = {**ROUTES[path], **force("alpha beta gamma delta"), "stop": ["ta gam"]}
    body["include_stop_str_in_output"] = include
    expected = "alpha beta gam" if include else "alpha be"
    choice = smollm2.post(path, body).json()["choices"][0]
    assert (said(choice), choice["finish_reason"]) == (expected, "stop")
    assert text_of(path, events_of(smollm2.post(path, {**body, "stream": True}))) == expected


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": ""}, "prompt"),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": [[]]}, "prompt"),
        ("/v1/completions", {"prompt": ["a", ""]}, "prompt[1]"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
    ],
)
def test_an_empty_prompt(smollm2: Running, path: str, body: Any, param: str) -> None:
    for _ in range(2):
        response = smollm2.post(path, body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param
    assert smollm2.http.get("/health").status_code == 200


def test_a_prompt_longer_than_the_context(smollm2: Running) -> None:
    response = smollm2.post("/v1/completions", {"prompt": "lorem " * 12000, "max_tokens": 16})
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    n_tokens = smollm2.post("/tokenize", {"prompt": "lorem " * 12000}).json()["count"]
    assert "2048" in error["message"] and str(n_tokens) in error["message"]
    body = {"prompt": [100] * 2044, "max_tokens": 64, "temperature": 0, "ignore_eos": True}
    answer = smollm2.post("/v1/completions", body).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["usage"]["prompt_tokens"] == 2044


def test_text_offsets_under_echo(smollm2: Running) -> None:
    body = {
        "prompt": "Été à Zürich: 🚀",
        "echo": True,
        "logprobs": 3,
        "max_tokens": 5,
        "temperature": 0,
    }
    choice = smollm2.post("/v1/completions", body).json()["choices"][0]
    logprobs, text = choice["logprobs"], choice["text"]
    lines = events_of(smollm2.post("/v1/completions", {**body, "stream": True}))
    chunks = [json.loads(line)["choices"][0] for line in lines[:-1]]
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        assert [x for c in chunks for x in (c["logprobs"] or {}).get(name, [])] == logprobs[name]
    assert "".join(c["text"] for c in chunks) == text
    offsets = logprobs["text_offset"]
    assert offsets == sorted(offsets) and logprobs["token_logprobs"][0] is None
    parts = 0
    for token, offset in zip(logprobs["tokens"], offsets, strict=True):
        if token.startswith("bytes:"):
            parts += 1
            data = bytes(int(part, 16) for part in token.split("\\x")[1:])
            assert data in text[offset:].encode()
        else:
            assert text[offset:].startswith(token)
    assert parts >= 2  # the rocket


def test_biases_out_of_range_beside_another_request(smollm2: Running) -> None:
    ask = {"prompt": "Rivers:", "temperature": 0, "max_tokens": 40, "return_token_ids": True}
    alone = smollm2.post("/v1/completions", ask).json()["choices"][0]["token_ids"]
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(smollm2.post, "/v1/completions", ask)
        for bias, param in (
            ({"49152": 5}, "logit_bias[49152]"),
            ({"-1": 5}, "logit_bias['-1']"),
            ({"12": 1e30}, "logit_bias.12"),
            ({"abc": 1}, "logit_bias['abc']"),
            ({str(i % 49152): 1 for i in range(60_000)}, "logit_bias"),
        ):
            response = smollm2.post("/v1/completions", {**ask, "logit_bias": bias})
            assert response.status_code == 400
            assert response.json()["error"]["param"] == param
        assert running.result().json()["choices"][0]["token_ids"] == alone
    first = str(alone[0])
    banned = smollm2.post("/v1/completions", {**ask, "logit_bias": {first: -100}}).json()
    assert alone[0] not in banned["choices"][0]["token_ids"]
    forced = smollm2.post("/v1/completions", {**ask, "logit_bias": {first: 100}}).json()
    assert set(forced["choices"][0]["token_ids"]) == {alone[0]}


def nested(depth: int) -> Any:
    return json.loads('{"type":"array","items":' * depth + "{}" + "}" * depth)


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        ({"type": "integer", "minimum": 3, "maximum": 4, "multipleOf": 0.5}, None),
        (nested(40), False),
        ({"$ref": "#"}, None),
        ({"type": "object", "required": ["k"]}, True),
        ({"type": "flying"}, False),
        ({"type": "string", "pattern": "("}, False),
    ],
)
def test_invalid_and_hostile_schemas(smollm2: Running, schema: Any, accepted: bool | None) -> None:
    """Enforced or refused by name, never silent."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"messages": MESSAGES, "response_format": form, "temperature": 0, "max_tokens": 60}
    response = smollm2.post("/v1/chat/completions", body)
    assert response.status_code == 400 if accepted is False else response.status_code in (200, 400)
    if response.status_code == 400:
        assert response.json()["error"]["param"] == "response_format.json_schema.schema"
        return
    assert accepted is not False
    choice = response.json()["choices"][0]
    if choice["finish_reason"] == "stop":
        value = json.loads(choice["message"]["content"])
        if schema.get("type") == "integer":
            assert value in (3, 4)
        if "required" in schema:
            assert "k" in value
    elif "required" in schema:
        assert '"k"' in choice["message"]["content"]


def test_a_schema_of_20000_levels_is_refused_as_it_is_read(smollm2: Running) -> None:
    deep = '{"type":"array","items":' * 20_000 + "{}" + "}" * 20_000
    body = (
        '{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",'
        f'"json_schema":{{"name":"x","schema":{deep}}}}}}}'
    )
    response = smollm2.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    missing = {"type": "json_schema", "json_schema": {"name": "x"}}
    asked = {"messages": MESSAGES, "response_format": missing}
    error = smollm2.post("/v1/chat/completions", asked).json()["error"]
    assert error["param"] == "response_format.json_schema.schema"


@pytest.fixture(scope="module")
def narrow(smollm2_path: Path) -> Iterator[tuple[Running, AsyncLLM]]:
    """Two answers at once, in chunks of 64, and pages for about one and a half long requests."""
    running, llm = serve(
        smollm2_path,
        max_model_len=384,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        kv_cache_memory_bytes=24 * 16 * 23040,
    )
    yield running, llm
    running.close()
    llm.close()


ENDLESS = {"temperature": 0, "ignore_eos": True, "max_tokens": 400}


@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_leave_give_everything_back(
    narrow: tuple[Running, AsyncLLM], stream: bool
) -> None:
    """While one answers, one reads a long prompt and others wait: each leaves in turn."""
    server, llm = narrow
    long = {"prompt": [200] * 320, **ENDLESS, "max_tokens": 60}
    before = llm.stats()
    pages = before.pages_free + before.pages_cached
    for _ in range(17):  # a hundred clients, and another when not streaming
        gate = threading.Barrier(6)

        def part(body: dict[str, Any], gate: threading.Barrier = gate) -> None:
            gate.wait(60)
            leave(
                server,
                "/v1/completions",
                {**body, "stream": stream},
                after=b"200 OK" if stream else b"",
            )

        bodies = [{"prompt": f"Rivers {i}:", **ENDLESS} for i in range(4)] + [long, long]
        with ThreadPoolExecutor(6) as clients:
            list(clients.map(part, bodies))
        server.until(
            lambda: (
                (s := llm.stats()).running_sequences == s.waiting_sequences == s.pages_owned == 0
            )
        )

    # One who left before the server had read him may come to the engine after it was seen at rest.
    def all_back() -> bool:
        s = llm.stats()
        return s.running_sequences == 0 and s.pages_free + s.pages_cached == pages

    server.until(all_back)
    body = {"prompt": "Rivers:", "temperature": 0, "max_tokens": 8}
    assert server.post("/v1/completions", body).status_code == 200


def test_preemption_changes_no_text(narrow: tuple[Running, AsyncLLM]) -> None:
    """Four long answers and short ones beside a long prompt, in pages for one and a half."""
    server, llm = narrow
    bodies = [{"prompt": f"Rivers {i}:", **ENDLESS, "max_tokens": 120} for i in range(4)]
    alone = [server.post("/v1/completions", body).json()["choices"][0]["text"] for body in bodies]
    before = llm.stats().preemptions
    short = {"prompt": "Name one river:", "temperature": 0, "max_tokens": 4}
    long = {"prompt": [200] * 300, **ENDLESS, "max_tokens": 4}
    with ThreadPoolExecutor(12) as clients:
        asked = [clients.submit(server.post, "/v1/completions", b, timeout=600) for b in bodies]
        others = [clients.submit(server.post, "/v1/completions", long, timeout=600)]
        others += [
            clients.submit(server.post, "/v1/completions", short, timeout=600) for _ in range(5)
        ]
        together = [future.result().json()["choices"][0]["text"] for future in asked]
        assert all(future.result().status_code == 200 for future in others)
    assert together == alone
    assert llm.stats().preemptions > before
    assert llm.stats().pages_owned == 0
