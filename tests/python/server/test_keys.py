"""Keys: asked for everywhere but at /health, and kept from each other's cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.core.errors import BadInput
from pellucid.server.settings import Settings
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running


@pytest.fixture(scope="module")
def locked(tiny_path: Path) -> Iterator[Running]:
    running = Running(FakeClient(tiny_path), api_keys=("key-a", "key-b"))
    yield running
    running.close()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "key-a"},
        {"Authorization": "Basic key-a"},
        {"X-API-Key": "key-"},
    ],
)
def test_without_a_key_nothing_is_served_but_health(
    locked: Running, headers: dict[str, str]
) -> None:
    for method, path in (
        ("POST", "/v1/completions"),
        ("POST", "/v1/messages"),
        ("GET", "/v1/models"),
        ("GET", "/props"),
        ("GET", "/version"),
        ("GET", "/openapi.json"),
        ("GET", "/nothing"),
    ):
        response = locked.http.request(method, path, headers=headers)
        assert response.status_code == 401, path
        assert response.json()["error"]["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
    assert locked.http.get("/health", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer key-a"}, {"authorization": "bearer key-b"}, {"X-Api-Key": "key-a"}],
)
def test_with_a_key_everything_is(locked: Running, headers: dict[str, str]) -> None:
    response = locked.post("/v1/completions", {"prompt": "hi"}, headers=headers)
    assert response.status_code == 200
    assert locked.http.get("/v1/models", headers=headers).status_code == 200


def test_each_key_and_each_salt_has_a_cache_of_its_own(locked: Running) -> None:
    for key in ("key-a", "key-b"):
        for salt in (None, "s", "t", "s"):
            body = {"prompt": "hi", "cache_salt": salt}
            headers = {"Authorization": f"Bearer {key}"}
            assert locked.post("/v1/completions", body, headers=headers).status_code == 200
    salts = locked.client.salts[-8:]
    assert len(set(salts)) == 6 and salts[1] == salts[3] and salts[5] == salts[7]


def test_without_keys_and_salts_there_is_one_cache(server: Running) -> None:
    server.post("/v1/completions", {"prompt": "hi"})
    server.post("/v1/completions", {"prompt": "hi", "cache_salt": "s", "priority": -3})
    assert server.client.salts[0] == b"" != server.client.salts[1]
    assert server.client.priorities == [0, -3]


@pytest.mark.parametrize("key", ["ключ", "a\nb", " a", "a\x7f"])
def test_a_key_that_no_header_could_carry_is_refused(key: str) -> None:
    with pytest.raises(BadInput, match="api_key"):
        Settings(api_keys=(key,))


@pytest.mark.parametrize(
    "given", [b"Bearer \xff\xfe", b"Bearer", b"", b"Basic a2V5LWE6", b"\xd0\xba"]
)
def test_whatever_a_header_holds_is_no_key(locked: Running, given: bytes) -> None:
    response = locked.http.get("/v1/models", headers=[(b"Authorization", given)])
    assert response.status_code == 401
