"""A batch broken off anywhere and resumed is the batch that was not: each line once, all equal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_kill import comparable
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.batch.index import Index
from pellucid.batch.output import Output
from pellucid.batch.run import Manner, Run
from pellucid.batch.source import Asked
from pellucid.core.errors import BadInput, PellucidError
from pellucid.server.offline import Offline
from pellucid.server.settings import Settings
from tests.python.batch.jobs import (
    LIMIT,
    MODEL,
    SETTINGS,
    by_seed,
    line,
    read_lines,
    run,
    write_lines,
)
from tests.python.server.conftest import TOOLS_TEMPLATE
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

Make = Callable[..., FakeClient]
TOOLS = [{"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}]
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 90}
LINES: list[dict[str, Any] | bytes] = [
    line("greedy", {"prompt": "p", "temperature": 0, "max_tokens": 9}),
    line("several", {"prompt": ["p", "p"], "n": 2, "max_tokens": 40}),
    b"no request",
    line("seeded", {"prompt": "p", "seed": 5, "max_tokens": 40}),
    line("no seed", {"prompt": "p", "seed": -1, "max_tokens": 40}),
    line("bad", {"prompt": "p", "max_tokens": "many"}),
    line("vector", {"input": ["a", "bc"]}, url="/v1/embeddings"),
    b"no request",
    line("chat", CHAT, url="/v1/chat/completions"),
    line("ü \u2028", CHAT, url="/v1/chat/completions"),
    line("response", {"input": "Hi", "max_output_tokens": 40}, url="/v1/responses"),
    line("nowhere", {}, url="/v1/nothing"),
]


def by_id(path: Path) -> dict[str, dict[str, Any]]:
    lines = read_lines(path)
    found = {item["id"]: comparable(item) for item in lines}
    assert len(found) == len(lines)
    return found


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, make_fake: Make) -> FakeClient:
    return make_fake(by_seed)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("batch") / "in.jsonl", LINES)


@pytest.fixture(scope="module")
def whole(client: FakeClient, source: Path) -> Path:
    """The output of a run that nothing broke."""
    target = source.with_name("whole.jsonl")
    run(client, source, target)
    return target


@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_batch_cut_anywhere_goes_on_to_the_same_end(
    client: FakeClient, source: Path, whole: Path, data: st.DataObject
) -> None:
    target = source.with_name("cut.jsonl")
    target.unlink(missing_ok=True)
    written = b""
    for _ in range(data.draw(st.integers(1, 3), "kills")):
        target.write_bytes(written)
        before = written.count(b"\n")
        client.reset(by_seed)
        tally = run(client, source, target, in_flight=data.draw(st.integers(1, 20), "in flight"))
        assert tally.lines == len(LINES) - before  # nothing twice
        grown = target.read_bytes()
        kept = written[: written.rfind(b"\n") + 1]
        assert grown.startswith(kept)  # nothing lost
        assert by_id(target) == by_id(whole)
        written = grown[: data.draw(st.integers(0, len(grown)), "bytes that were written")]


def test_lines_are_what_the_server_says(make_fake: Make, tmp_path: Path) -> None:
    def script(request: Any, index: int) -> str:
        return '<tool_call>{"name": "get", "arguments": {}}</tool_call>'

    asked = [item for item in LINES if isinstance(item, dict) and "messages" not in item["body"]]
    asked = [item for item in asked if item["custom_id"] not in ("no seed", "several", "nowhere")]
    asked.append(line("tools", {**CHAT, "tools": TOOLS}, url="/v1/chat/completions"))
    asked.append(line("alias", {"prompt": "p", "model": "alias", "echo": True, "logprobs": 2}))
    asked.append(line("other", {"prompt": "p", "model": "gpt-4"}))
    asked.append(line("lenient", {"prompt": "p", "store": True, "lenient": True}))
    client = make_fake(script, TOOLS_TEMPLATE)
    run(client, write_lines(tmp_path / "in", asked), tmp_path / "out")
    found = {item["custom_id"]: comparable(item) for item in read_lines(tmp_path / "out")}
    server = Running(client)
    try:
        for item in asked:
            said = server.post(item["url"], item["body"])
            expected = comparable({"response": {"body": said.json()}})["response"]["body"]
            line_ = found.pop(item["custom_id"])
            assert line_["response"]["status_code"] == said.status_code
            assert _without_ids(line_["response"]["body"]) == _without_ids(expected)
            assert (line_["error"] is None) == (said.status_code == 200)
    finally:
        server.close()
    assert not found


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_ids(item) for key, item in value.items() if key != "id"}
    if isinstance(value, list):
        return [_without_ids(item) for item in value]
    return value


def test_chance_is_decided_by_the_id_and_the_seed(make_fake: Make, tmp_path: Path) -> None:
    def texts(lines: list[dict[str, Any]], name: str, seed: int = 0) -> dict[str, list[str]]:
        target = tmp_path / name
        run(make_fake(by_seed), write_lines(tmp_path / "in", lines), target, seed=seed)
        return {
            item["custom_id"]: [c["text"] for c in item["response"]["body"]["choices"]]
            for item in read_lines(target)
        }

    body = {"prompt": ["p", "p"], "n": 2, "max_tokens": 90}
    first = texts([line("a", body), line("b", body)], "1")
    assert texts([line("b", body), line("c", body), line("a", body)], "2").items() > first.items()
    assert len({text for several in first.values() for text in several}) == 8
    assert texts([line("a", body)], "3", seed=1)["a"] != first["a"]
    assert texts([line("a", {**body, "seed": 3})], "4", seed=1) == texts(
        [line("a", {**body, "seed": 3})], "5", seed=2
    )


def test_ids_of_tool_calls_are_decided_too(make_fake: Make, tmp_path: Path) -> None:
    call = '<tool_call>{"name": "get", "arguments": {}}</tool_call>'
    source = write_lines(
        tmp_path / "in",
        [
            line(
                name,
                {**CHAT, "n": 2, "max_tokens": 200, "tools": TOOLS},
                url="/v1/chat/completions",
            )
            for name in ("a", "b")
        ],
    )
    for name in ("1", "2"):
        run(make_fake(lambda *_: call * 2, TOOLS_TEMPLATE), source, tmp_path / name)
    assert by_id(tmp_path / "1") == by_id(tmp_path / "2")
    ids = [
        made["id"]
        for item in read_lines(tmp_path / "1")
        for choice in item["response"]["body"]["choices"]
        for made in choice["message"]["tool_calls"]
    ]
    assert len(set(ids)) == 8


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": b"MMMM"}, "line 1 is the answer of another model"),
        ({"settings": b"SSSS"}, "line 1 was written under other settings"),
    ],
)
def test_an_output_of_other_settings_is_refused(
    client: FakeClient, source: Path, whole: Path, changed: dict[str, Any], said: str
) -> None:
    before = whole.read_bytes()
    with pytest.raises(BadInput, match=said):
        run(client, source, whole, **changed)
    assert whole.read_bytes() == before


def test_an_output_of_another_input_is_refused(make_fake: Make, tmp_path: Path) -> None:
    client, target = make_fake(by_seed), tmp_path / "out"
    run(client, write_lines(tmp_path / "in", [line("a"), line("b")]), target, in_flight=1)
    with pytest.raises(BadInput, match=r"line 2 answers custom_id 'b', which .*in does not have"):
        run(client, write_lines(tmp_path / "in", [line("a"), line("c")]), target)
    changed = [line("a"), b"", line("b", {"prompt": "another"})]
    with pytest.raises(BadInput, match="line 2 answers another request than line 3 of "):
        run(client, write_lines(tmp_path / "in", changed), target)
    target.write_bytes(target.read_bytes() * 2)
    with pytest.raises(BadInput, match="line 3 answers the same request as its line 1"):
        run(client, write_lines(tmp_path / "in", [line("a"), line("b")]), target)


def test_lines_may_be_added_to_an_input(make_fake: Make, tmp_path: Path) -> None:
    client, target = make_fake(by_seed), tmp_path / "out"
    run(client, write_lines(tmp_path / "in", [line("a")]), target)
    tally = run(client, write_lines(tmp_path / "in", [line("b"), line("a")]), target)
    assert tally.lines == 1
    assert [item["custom_id"] for item in read_lines(target)] == ["a", "b"]


def test_an_engine_that_is_gone_ends_the_batch_and_not_its_lines(
    make_fake: Make, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "in", [line(str(i)) for i in range(9)])
    client, target = make_fake(by_seed), tmp_path / "out"

    def break_down(tally: Any) -> None:
        if tally.lines == 4:
            client.failure = PellucidError("the engine ended")

    with pytest.raises(PellucidError, match="the engine ended; give the same command again"):
        run(client, source, target, in_flight=2, on_line=break_down)
    kept = read_lines(target)
    assert 4 <= len(kept) < 9 and not any(item["error"] for item in kept)
    client.reset(by_seed)
    assert run(client, source, target).lines == 9 - len(kept)
    assert len(by_id(target)) == 9


def test_a_line_that_the_engine_fails_at_is_asked_again_and_is_then_an_error_of_its_own(
    make_fake: Make, tmp_path: Path
) -> None:
    """A step that fails takes every request of the moment with it."""
    client = make_fake(by_seed)
    poison = "of 3"

    def script(request: Any, index: int) -> str:
        if request.prompt == poison:
            client.breaks_with = PellucidError("a step failed")
        return by_seed(request, index)

    real = client.stream

    async def stream(prompt: Any, *arguments: Any, **options: Any) -> Any:
        client.breaks_with = None  # the engine goes on after a step that failed
        return await real(prompt, *arguments, **options)

    client.reset(script)
    client.stream = stream  # type: ignore[method-assign]
    source = write_lines(tmp_path / "in", [line(str(i)) for i in range(4)])
    run(client, source, tmp_path / "out", in_flight=4)
    failed = {item["custom_id"]: item["error"] for item in read_lines(tmp_path / "out")}
    assert failed.pop("3") == {"code": "internal_error", "message": "a step failed"}
    assert set(failed) == {"0", "1", "2"} and not any(failed.values())


def test_what_has_ended_is_kept_when_the_batch_is_stopped(
    client: FakeClient, source: Path, whole: Path, tmp_path: Path
) -> None:
    """And no more lines were read than were in flight."""
    client.reset(by_seed)
    index = Index(source, LIMIT)
    n_read = 0

    def counted() -> Iterator[Asked]:
        nonlocal n_read
        for asked in index.undone():
            n_read += 1
            yield asked

    async def stopped_after(count: int) -> None:
        with Output(tmp_path / "out") as output:
            index.strike_off(output, MODEL, SETTINGS)
            enough = asyncio.Event()
            work = Run(
                Offline(client, Settings(served_model_names=("tiny",))),
                output,
                Manner(MODEL, SETTINGS, 0, 3),
            )

            def on_line() -> None:
                if work.tally.lines == count:
                    client.gate.clear()
                    enough.set()

            work.on_line = on_line
            running = asyncio.create_task(work.answer(counted()))
            await enough.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert n_read <= work.tally.lines + 3
            assert work.tally.lines <= len(read_lines(tmp_path / "out")) < len(LINES)

    client.gate.set()
    asyncio.run(stopped_after(4))
    assert not client.live
    run(client, source, tmp_path / "out")
    assert by_id(tmp_path / "out") == by_id(whole)
