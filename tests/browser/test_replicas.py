"""The pages of a server with several replicas: they say which one is shown, and show another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chrome import Page

from pellucid import AsyncLLM
from pellucid.engine.client import LocalClient
from tests.browser.conftest import view, wait_for_records
from tests.python.engine.conftest import DEFAULTS
from tests.python.engine.tiny import write_model
from tests.python.server.live.test_replicas import Two
from tests.python.server.running import Running

SELECT = "document.querySelector('.bar select')"


def test_the_viewer_chooses_a_replica(open_page: Callable[..., Page], tmp_path: Path) -> None:
    model = write_model(tmp_path / "tiny.gguf")
    llms = [AsyncLLM(model, **DEFAULTS) for _ in range(2)]
    running = Running(Two(*map(LocalClient, llms)))
    try:
        body = {"prompt": [5] * 20, "max_tokens": 9, "ignore_eos": True}
        running.post("/v1/completions", body).raise_for_status()
        page = open_page(running.url)
        page.until(f"!{SELECT}.hidden && {SELECT}.value === 'east'")
        names = page.run(f"[...{SELECT}.options].map((option) => option.textContent)")
        assert names == ["replica 1 of 2 (east)", "replica 2 of 2 (west)"]
        page.until("pellucid.app.feed.state === 'live'")
        assert view(page, "batch")["steps"] == []
        page.run(f"{SELECT}.value = 'west'; {SELECT}.dispatchEvent(new Event('change'))")
        wait_for_records(page)
        page.until(f"!{SELECT}.hidden && {SELECT}.value === 'west'")
        page.until("pellucid.app.store.requests.length === 1")
        assert page.run("location.hash") == "#replica=west"
        again = open_page(running.url + "/#replica=west")  # a link shows the same
        wait_for_records(again)
        again.until(f"!{SELECT}.hidden && {SELECT}.value === 'west'")
        assert again.errors == []
        assert page.errors == []
    finally:
        running.close()
        for llm in llms:
            llm.close()
