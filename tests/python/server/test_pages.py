"""The pages: served whole, without a key, from what is there and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.server.pages import INDEX, WEB, pages, without_comments
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

LARGEST_SITE = 400_000
LONGEST_FILE = 600
COMMENT = (b"//", b"/*", b"* ", b"*/", b"*")


@pytest.fixture(scope="module")
def locked(tiny_path: Path) -> Iterator[Running]:
    running = Running(FakeClient(tiny_path), api_keys=("key-a",))
    yield running
    running.close()


def test_the_pages_need_no_key_and_what_they_ask_for_does(locked: Running) -> None:
    front = locked.http.get("/")
    assert front.status_code == 200
    assert front.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Pellucid</title>" in front.text
    assert locked.http.get("/web/main.js").status_code == 200
    assert locked.http.get("/tokenize/tokenizers").status_code == 401


def test_the_policy_allows_nothing_from_elsewhere_and_no_markup_from_text(server: Running) -> None:
    for path in ("/", "/web/main.js", "/web/base.css"):
        policy = server.http.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "http" not in policy and "*" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert server.http.get(path).headers["x-content-type-options"] == "nosniff"


def test_a_file_that_did_not_change_is_not_sent_again(server: Running) -> None:
    first = server.http.get("/web/main.js")
    tag = first.headers["etag"]
    again = server.http.get("/web/main.js", headers={"If-None-Match": tag})
    assert again.status_code == 304 and again.content == b""
    assert server.http.get("/web/main.js", headers={"If-None-Match": '"other"'}).content


@pytest.mark.parametrize(
    "path",
    ["", "..%2Fapp.py", "%2e%2e/app.py", "core/../../app.py", "no.js", "core", "//etc/passwd"],
)
def test_nothing_else_can_be_asked_for(server: Running, path: str) -> None:
    response = server.http.get(f"/web/{path}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def test_every_file_that_a_page_names_is_there() -> None:
    found = pages()
    for name, page in found.items():
        text = page.content.decode()
        for module in re.findall(r'from "(\.[^"]+)"', text):
            target = (WEB / name).parent.joinpath(module).resolve().relative_to(WEB.resolve())
            assert target.as_posix() in found, f"{name} imports {module}"
        for address in re.findall(r'(?:src|href)="/web/([^"]+)"', text):
            assert address in found, f"{name} names {address}"


def test_every_module_is_fetched_at_once() -> None:
    """The front page names all of them, so that the depth of imports costs no round trips."""
    text = pages()[INDEX].content.decode()
    named = set(re.findall(r'href="/web/([^"]+\.js)"', text)) | {"main.js"}
    modules = {name for name in pages() if name.endswith(".js")}
    assert named == {name for name in modules if not name.startswith("guide/")}


def test_the_pages_are_small_and_ask_nobody_else() -> None:
    assert sum(len(page.content) for page in pages().values()) < LARGEST_SITE
    for name, page in pages().items():
        text = page.content.decode()
        assert text.count("\n") <= LONGEST_FILE, name
        outside = set(re.findall(r"https?://[^\s\"'`]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not outside, f"{name} names {outside}"


def test_modules_are_sent_without_comments_and_code_keeps_its_lines() -> None:
    script = (
        b"// one\n/** two\n * lines */\nconst a = 1; // stays\n  // goes\nconst b = `/* c */`;\n"
    )
    kept = b"\n\n\nconst a = 1; // stays\n\nconst b = `/* c */`;\n"
    assert without_comments(script) == kept
    for name, page in pages().items():
        if name.endswith(".js"):
            source, sent = ((WEB / name).read_bytes().split(b"\n"), page.content.split(b"\n"))
            assert len(source) == len(sent), name
            for line, served in zip(source, sent, strict=True):
                assert served == line or (not served and line.lstrip()[:2] in COMMENT), name


def test_no_text_becomes_markup() -> None:
    """Prompts are hostile: whatever is shown goes through textContent."""
    ways = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(")
    for name, page in pages().items():
        assert not ways.search(page.content.decode()), name
