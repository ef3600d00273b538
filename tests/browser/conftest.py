"""A real browser, a real server on the default model, and some traffic."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chrome import Chrome, Page, find_browser

from tests.model.conftest import smollm2_path  # noqa: F401 - the fixture
from tests.model.server.conftest import serve
from tests.python.server.running import Running

SYSTEM = "You answer in plain words, and never invent numbers. " * 12
QUESTIONS = ("Name three rivers.", "Why is the sky blue?", "What is a cat?", "Say a poem.")


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium here: `apt install chromium` brings one")
    browser = Chrome(path)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def served(chrome: Chrome, smollm2_path: Path) -> Iterator[Running]:  # noqa: F811
    """A server that has answered four requests, which share a beginning."""
    running, llm = serve(smollm2_path, max_model_len=1024, max_num_seqs=4)
    asyncio.run(llm.measure_machine())  # as `pellucid serve` does: without it there is no roof
    threads = [threading.Thread(target=ask, args=(running, i)) for i in range(len(QUESTIONS))]
    ask(running, 0)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield running
    running.close()
    llm.close()


def ask(running: Running, number: int) -> None:
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTIONS[number]},
    ]
    body = {"messages": messages, "max_tokens": 12 + 6 * number, "seed": number}
    assert running.post("/v1/chat/completions", body).status_code == 200


@pytest.fixture
def open_page(chrome: Chrome) -> Iterator[Callable[..., Page]]:
    """Opens a URL in a tab of its own, which closes with the test."""
    tabs: list[Page] = []

    def start(url: str, width: int = 1280, height: int = 900, **media: str) -> Page:
        tab = chrome.page(width, height)
        tabs.append(tab)
        tab.prefer(prefers_reduced_motion="reduce", **media)
        tab.goto(url)
        tab.until("globalThis.pellucid !== undefined")
        return tab

    yield start
    for tab in tabs:
        tab.close()


def view(page: Page, name: str) -> dict[str, Any]:
    """The data that a figure draws."""
    found: dict[str, Any] = page.run(f"pellucid.view('{name}')")
    return found


def wait_for_records(page: Page) -> None:
    page.until("pellucid.app.store.steps.length > 0 && pellucid.app.store.about !== null")


def settle(page: Page) -> None:
    """Waits until what was scrolled has told so, and was drawn."""
    frame = "new Promise((done) => requestAnimationFrame(done))"
    page.run(f"{frame}.then(() => {frame}).then(() => {frame}).then(() => true)")


def insist(page: Page, act: Callable[[], None], condition: str) -> None:
    """Does `act` until `condition` holds in the page: what is above an element may grow while
    somebody points at it. `act` must be something that may be done twice."""
    for patience_s in (5.0, 10.0, 20.0, 40.0):
        act()
        with contextlib.suppress(AssertionError):
            page.until(condition, patience_s)
            return
    page.until(condition)


def point(page: Page, expression: str, down: float) -> tuple[float, float]:
    """Points at an element, in its middle and `down` pixels from its top, until it says what is
    there; where that is."""
    where = (0.0, 0.0)

    def there() -> None:
        nonlocal where
        page.move(1, 1)
        x, _ = place(page, expression)
        where = (x, page.run(f"{expression}.getBoundingClientRect().top") + down)
        page.move(*where)

    insist(page, there, "!document.querySelector('.tip').hidden")
    return where


def place(page: Page, expression: str) -> tuple[float, float]:
    """The middle of an element, once it is in sight."""
    page.run(f"{expression}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    settle(page)
    x, y = page.run(
        f"""(() => {{ const box = {expression}.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2]; }})()"""
    )
    return x, y


def assert_quiet(page: Page, served: Running) -> None:
    """No complaint, and nothing asked of anybody else."""
    assert page.errors == []
    assert page.requests
    for url in page.requests:
        assert url.startswith((served.url + "/", "blob:" + served.url)), url


_BUSY_ONCE = """(path) => {
  const [fetched, waits] = [window.fetch, window.setTimeout];
  window.asked = 0;
  window.fetch = (url, ...rest) => String(url).includes(path) && !window.asked++
    ? Promise.resolve(Response.json({ error: { message: "others are served" } }, { status: 202,
        headers: { "Retry-After": "9", "Preference-Applied": "respond-async" } }))
    : fetched(url, ...rest);
  window.again = new Promise((go) => { window.letGo = go; });
  window.setTimeout = (f, ms, ...rest) =>
    ms === 9000 ? window.again.then(f) : waits(f, ms, ...rest);
}"""


def busy_once(page: Page, path: str) -> None:
    """The first time that the page asks for `path` the server is busy for 9 s, which are over when
    the test calls `window.letGo`; `window.asked` counts."""
    page.run(f"({_BUSY_ONCE})('{path}')")


def say(page: Page, n_tokens: int) -> None:
    """The playground's text is sent, and the answer has begun to be told by the records too."""
    page.run(f"document.querySelector('.playground [name=max_tokens]').value = '{n_tokens}'")
    page.run("document.querySelector('.playground form').requestSubmit()")
    page.until("document.querySelector('.said.answer').dataset.paint !== undefined")
