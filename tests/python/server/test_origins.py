"""Web pages: those from elsewhere may not use a server that happens to be within their reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

PAGE = "https://chat.example"
ASK = {"prompt": "hi", "max_tokens": 1}


@pytest.fixture(scope="module")
def open_to_all_programs(tiny_path: Path) -> Iterator[Running]:
    running = Running(FakeClient(tiny_path))
    yield running
    running.close()


@pytest.fixture(scope="module")
def open_to_a_page(tiny_path: Path) -> Iterator[Running]:
    running = Running(FakeClient(tiny_path), api_keys=("key",), allowed_origins=(PAGE,))
    yield running
    running.close()


@pytest.mark.parametrize(
    "origin", [PAGE, "null", "http://localhost:1", "http://127.0.0.1", "http://[", "", "file://"]
)
def test_a_page_from_elsewhere_is_refused(open_to_all_programs: Running, origin: str) -> None:
    """Also where the browser asks nobody first, as it does for text/plain."""
    headers = {"Origin": origin, "Content-Type": "text/plain"}
    response = open_to_all_programs.post("/v1/completions", ASK, headers=headers)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "origin_not_allowed"
    assert "access-control-allow-origin" not in response.headers


def test_programs_and_its_own_pages_are_served(open_to_all_programs: Running) -> None:
    url = open_to_all_programs.http.base_url
    own = {"Origin": f"http://{url.host}:{url.port}"}
    for headers in ({}, own):
        response = open_to_all_programs.post("/v1/completions", ASK, headers=headers)
        assert response.status_code == 200


def test_a_name_that_was_pointed_here_is_not_its_own(open_to_all_programs: Running) -> None:
    headers = {"Origin": "http://evil.example:8000", "Host": "evil.example:8000"}
    response = open_to_all_programs.post("/v1/completions", ASK, headers=headers)
    assert response.status_code == 403


@pytest.mark.parametrize("host", ["evil.example:8000", "evil.example", "[", ""])
def test_records_are_not_told_under_a_name_that_may_be_anybodys(
    open_to_all_programs: Running, host: str
) -> None:
    """A page reads what it takes for its own without telling an origin."""
    for path in ("/live/about", "/live/records", "/live/recording"):
        response = open_to_all_programs.http.get(path, headers={"Host": host})
        assert response.status_code == 403
        assert "--api-key" in response.json()["error"]["message"]
    assert open_to_all_programs.http.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000"])
def test_records_are_told_under_a_number(open_to_all_programs: Running, host: str) -> None:
    response = open_to_all_programs.http.get("/live/records", headers={"Host": host})
    assert response.status_code != 403


def test_an_allowed_page_may_ask_and_read(open_to_a_page: Running) -> None:
    asked = open_to_a_page.http.options(
        "/v1/completions",
        headers={
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
    )
    assert asked.status_code == 200  # a browser sends no key with this question
    assert asked.headers["access-control-allow-origin"] == PAGE
    key = {"Authorization": "Bearer key"}
    response = open_to_a_page.post("/v1/completions", ASK, headers={"Origin": PAGE, **key})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    other = {"Origin": "https://other.example", **key}
    assert open_to_a_page.post("/v1/completions", ASK, headers=other).status_code == 403


def test_behind_a_key_a_page_under_any_name_of_the_server_is_its_own(
    open_to_a_page: Running,
) -> None:
    headers = {"Origin": "http://llm.corp", "Host": "llm.corp", "Authorization": "Bearer key"}
    assert open_to_a_page.post("/v1/completions", ASK, headers=headers).status_code == 200
