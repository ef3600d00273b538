"""The guide as it is served: every chapter, its figures, its numbers, and what its figures ask."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.core.errors import Overloaded, PellucidError
from pellucid.explain.inside import look_inside
from pellucid.formats import open_checkpoint
from pellucid.server.guide import look, page
from pellucid.server.guide.chapters import CHAPTERS, chapters
from pellucid.server.guide.markdown import render
from pellucid.server.guide.numbers import in_words, model_numbers
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

WEB = CHAPTERS.parent.parent / "web" / "guide"


def figures() -> set[str]:
    """The names that main.js knows."""
    listed = re.search(r"const FIGURES = \{(.*?)\};", (WEB / "main.js").read_text(), re.DOTALL)
    assert listed is not None
    pairs = re.findall(r'"([a-z-]+)": \w+|(\w+)', listed[1])
    return {quoted or plain for quoted, plain in pairs}


def test_there_are_fourteen_chapters_in_order_and_an_hour_to_read() -> None:
    assert [chapter.number for chapter in chapters().values()] == list(range(1, 15))
    assert 40 <= sum(chapter.minutes for chapter in chapters().values()) <= 60


@pytest.mark.parametrize("name", chapters())
def test_each_chapter_is_served_with_a_figure_and_its_papers(server: Running, name: str) -> None:
    answer = server.http.get(f"/guide/{name}")
    assert answer.status_code == 200
    html = answer.text
    shown = re.findall(r'<pellucid-figure name="([a-z-]+)">', html)
    assert shown
    assert set(shown) <= figures()
    assert "<h2>Papers</h2>" in html
    assert "{{" not in html
    assert "$" not in html.split("<main")[1]
    # Nothing comes from elsewhere, nothing is written into the page that its policy forbids.
    assert not re.search(r'(src|href)="(https?:)?//', html)
    assert not re.search(r"\sstyle=|\son\w+=|<script(?![^>]*(src=|application/json))", html)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_every_figure_is_in_some_chapter() -> None:
    shown = {
        name
        for chapter in chapters().values()
        for name in re.findall(r'<pellucid-figure name="([a-z-]+)">', chapter.source)
    }
    assert shown == figures()


def test_the_contents_list_every_chapter(server: Running) -> None:
    html = server.http.get("/guide").text
    assert re.findall(r'<li><a href="/guide/([a-z-]+)"', html) == list(chapters())


def test_the_numbers_are_those_of_the_model_that_runs(server: Running, tiny_path: Path) -> None:
    numbers = model_numbers(tiny_path, "tiny")
    assert numbers["kv_bytes"] == 2 * 2 * 2 * 8 * 2
    html = server.http.get("/guide/the-kv-cache").text
    assert "<mn>2</mn><mo>×</mo><mn>2</mn><mo>×</mo><mn>2</mn><mo>×</mo><mn>8</mn>" in html
    data = re.search(r'id="numbers">(.*?)</script>', html)
    assert data is not None
    assert json.loads(data[1]) == json.loads(json.dumps(numbers))
    for chapter in chapters().values():  # every number that is written is known
        render(chapter.source, in_words(numbers))


def test_links_of_the_chapters_lead_somewhere() -> None:
    for chapter in chapters().values():
        for link in re.findall(r"\]\(([^)]+)\)", chapter.source):
            assert link.startswith(("assets/", "/guide")), f"{chapter.name}: {link}"


@pytest.mark.parametrize("path", ["/guide/nothing", "/guide/assets/none.mp4", "/guide/assets/../x"])
def test_what_is_not_there(server: Running, path: str) -> None:
    answer = server.http.get(path)
    assert answer.status_code == 404
    assert "error" in answer.json()


# What figures ask


def test_a_look_inside(server: Running) -> None:
    seen = server.post("/guide/look", {"prompt": "hello"}).json()
    n = len(seen["tokens"])
    assert "".join(token["text"] for token in seen["tokens"]) == "hello"
    assert len(seen["lens"]) == seen["layers"] + 1 == 3
    assert all(row == sorted(row, key=lambda one: -one["p"]) for row in seen["lens"])
    for head in seen["heads"]:
        for i, row in enumerate(head):
            assert sum(row) == pytest.approx(1, abs=1e-3 * n)
            assert not any(row[i + 1 :])
    chosen = seen["heads"][seen["head"]][-1]
    assert [math.exp(one) for one in seen["logs"]] == pytest.approx(chosen, abs=1e-4)
    again = server.post("/guide/look", {"prompt": "hello", "layer": 0}).json()
    assert again["layer"] == 0


def test_what_a_look_says_of_the_stream_adds_up(server: Running, tiny_path: Path) -> None:
    seen = server.post("/guide/look", {"prompt": "hello"}).json()
    with open_checkpoint(tiny_path) as checkpoint:
        ids = [token["id"] for token in seen["tokens"]]
        every = look_inside(checkpoint, ids, 96).residuals
    size = min(32, every.shape[1])
    assert seen["row"] == pytest.approx(every[0][:size], rel=1e-3)
    for row, exact in zip(seen["stream"], every, strict=True):
        assert row == pytest.approx(exact[seen["features"]], rel=1e-3)
    assert seen["sizes"] == pytest.approx([np.sqrt(np.mean(row**2)) for row in every], rel=1e-3)
    assert seen["added"][0] == seen["sizes"][0]
    last = np.sqrt(np.mean((every[-1] - every[-2]) ** 2))
    assert seen["added"][-1] == pytest.approx(last, rel=1e-3)


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ""},
        {"prompt": "x" * 200},
        {"prompt": "he", "layer": 2},
        {"prompt": "he", "layer": -1},
        {"prompt": 3},
        {},
        {"prompt": "he", "more": 1},
    ],
)
def test_a_look_that_is_refused(server: Running, body: object) -> None:
    answer = server.post("/guide/look", body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


class Held:
    """Looks that wait in their thread until `leave`, if `calls` of them have not begun before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.leave = threading.Semaphore(0), threading.Event()
        self.ended: list[str] = []
        self._real = look.look_inside
        monkeypatch.setattr(look, "look_inside", self)

    def __call__(self, *arguments: Any) -> Any:
        self.entered.release()
        assert self.leave.wait(60)
        try:
            found = self._real(*arguments)
        except PellucidError as error:
            self.ended.append(str(error))
            raise
        self.ended.append("done")
        return found


def test_many_looks_at_once_are_refused_and_not_queued(
    server: Running, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)

    async def looks() -> tuple[list[int], list[dict[str, Any]]]:
        looks = look.Looks(look.Looker(tiny_path, server.client.tokenizer, 96))
        asked = [
            asyncio.ensure_future(looks.look("ab"[: 1 + i % 2], None))
            for i in range(look.MOST_WAITING)
        ]
        assert await asyncio.to_thread(held.entered.acquire, timeout=60)
        with pytest.raises(Overloaded):
            await looks.look("c", None)
        asked.pop().cancel()
        await asyncio.sleep(0)
        after = asyncio.ensure_future(looks.look("c", None))  # whoever leaves makes room
        held.leave.set()
        seen = [len((await one)["tokens"]) for one in asked]
        return seen, [await after]

    seen, [last] = asyncio.run(looks())
    assert seen == [1, 2] * (look.MOST_WAITING // 2 - 1) + [1]
    assert [token["text"] for token in last["tokens"]] == ["c"]


def test_who_leaves_takes_nothing_any_more(
    make_fake: Callable[..., FakeClient],
    serve: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    server = serve(make_fake())
    looks = server.app.state.guide.looks
    asking = []
    for count, prompt in enumerate(("a", "b", "ba"), 1):  # one that runs, two that wait for it
        asking.append(asked(server, prompt))
        server.until(lambda count=count: looks._n == count)  # type: ignore[misc]
    assert held.entered.acquire(timeout=60)
    for one in asking:
        one.close()
    server.until(lambda: looks._n == 0)
    held.leave.set()
    assert server.post("/guide/look", {"prompt": "ab"}).status_code == 200
    assert held.ended == ["whoever asked has left", "done"]


def asked(server: Running, prompt: str) -> socket.socket:
    """A connection on which a look was asked for."""
    body = json.dumps({"prompt": prompt}).encode()
    head = f"POST /guide/look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    where = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((where[0], int(where[1])))
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return connection


def test_a_busy_guide_tells_who_can_wait_when_to_ask_again(
    make_fake: Callable[..., FakeClient],
    serve: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look, "MOST_WAITING", 0)
    server = serve(make_fake())
    refused = server.post("/guide/look", {"prompt": "a"})
    waits = server.post("/guide/look", {"prompt": "a"}, headers={"Prefer": "respond-async, wait=9"})
    assert (refused.status_code, waits.status_code) == (429, 202)
    assert refused.headers["Retry-After"] == waits.headers["Retry-After"]
    assert refused.json() == waits.json()


def test_looks_that_take_long_keep_nobody_waiting(
    make_fake: Callable[..., FakeClient],
    serve: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, leave = threading.Event(), threading.Event()
    real = look.look_inside

    def slow(*arguments: Any) -> Any:
        entered.set()
        assert leave.wait(60)
        return real(*arguments)

    monkeypatch.setattr(look, "look_inside", slow)
    server = serve(make_fake())
    one_thread = ThreadPoolExecutor(1)  # as `pellucid serve` has few
    server.call(lambda: asyncio.get_running_loop().set_default_executor(one_thread))
    with ThreadPoolExecutor(2) as pool:
        try:
            bodies = [{"prompt": prompt} for prompt in ("a", "b")]
            looks = [pool.submit(server.post, "/guide/look", body) for body in bodies]
            assert entered.wait(60)
            assert server.http.get("/guide/pages").status_code == 200
            assert server.post("/v1/completions", {"prompt": "hello"}).status_code == 200
            assert not any(one.done() for one in looks)
        finally:
            leave.set()
        assert [one.result().status_code for one in looks] == [200, 200]


def test_the_guide_is_read_without_a_key_and_looks_need_one(
    make_fake: Callable[..., FakeClient], serve: Callable[..., Running]
) -> None:
    locked = serve(make_fake(), api_keys=("secret",))
    assert locked.http.get("/guide").status_code == 200
    assert locked.http.get("/guide/tokens").status_code == 200
    assert locked.post("/guide/look", {"prompt": "he"}).status_code == 401
    key = {"Authorization": "Bearer secret"}
    assert locked.post("/guide/look", {"prompt": "he"}, headers=key).status_code == 200


def test_a_server_that_nobody_reads_the_guide_of_pays_nothing_for_it() -> None:
    code = (
        "import sys, pellucid.server.app\n"
        "assert not {'markdown_it', 'pellucid.explain.inside'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_clip_that_was_not_made_is_left_out_and_one_that_was_is_shown(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "CHAPTERS", tmp_path)
    numbers, [clip] = model_numbers(tiny_path, "tiny"), clips()
    chapter = chapters()["batching"]
    assert "<video" not in page.chapter_page(chapter, numbers)
    (tmp_path / clip).parent.mkdir(parents=True)
    (tmp_path / clip).write_bytes(b"film")
    assert f'<source src="/guide/{clip}"' in page.chapter_page(chapter, numbers)


def clips() -> list[str]:
    """What the chapters show of films."""
    found = (re.findall(r"\]\((assets/video/[^ )]+)", one.source) for one in chapters().values())
    return [clip for each in found for clip in each]
