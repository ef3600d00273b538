"""IN: what a line is, and what is said of one that is no request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pellucid.batch.index import Index
from pellucid.batch.source import check_file, requests
from pellucid.core.errors import BadInput
from pellucid.server.errors import ApiError
from tests.python.batch.jobs import LIMIT, line, write_lines


def message_of(path: Path) -> str:
    """What is said of the only line."""
    [asked] = requests(path, LIMIT)
    assert isinstance(asked.request, ApiError)
    return asked.request.message


def test_lines_end_in_any_way_and_blank_ones_are_none(tmp_path: Path) -> None:
    one, two, three = (json.dumps(line(name)).encode() for name in ("a", "b", "ü"))
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + one + b"\r\n\n  \n" + two + b"\n" + three)
    found = list(requests(path, LIMIT))
    assert [(asked.number, asked.custom_id) for asked in found] == [(1, "a"), (4, "b"), (5, "ü")]
    assert not any(isinstance(asked.request, ApiError) for asked in found)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"nope", "line 1 is no JSON"),
        (b"[1]", "line 1 must be a JSON object, not list"),
        (b'{"custom_id": "\xff"}', "line 1 is no UTF-8 at byte 15"),
        (b'{"custom_id": "\\ud800"}', "line 1 is no JSON"),
        (b"[" * 2000, "line 1 is no JSON"),
        (json.dumps({**line("a"), "custom_id": 5}).encode(), "custom_id: "),
        (json.dumps({**line("a"), "custom_id": ""}).encode(), "custom_id: "),
        (json.dumps({**line("a"), "custom_id": "x" * 513}).encode(), "custom_id: "),
        (json.dumps({**line("a"), "method": "GET"}).encode(), "method: input should be 'POST'"),
        (json.dumps({**line("a"), "more": 1}).encode(), "more: "),
        (json.dumps({**line("a"), "body": "text"}).encode(), "body: "),
        (b'{"custom_id": "a", "method": "POST", "url": "/"}', "body: is required"),
    ],
)
def test_what_is_no_request_is_said_to_be_none(tmp_path: Path, raw: bytes, said: str) -> None:
    assert message_of(write_lines(tmp_path / "in.jsonl", [raw])).startswith(said)


def test_a_line_above_the_limit_is_passed_over_and_the_next_is_read(tmp_path: Path) -> None:
    most = json.dumps(line("most")).encode().ljust(LIMIT)
    lines = [most, most + b" ", b"x" * (3 << 20), line("last")]
    found = list(requests(write_lines(tmp_path / "in.jsonl", lines), LIMIT))
    assert [asked.custom_id for asked in found] == ["most", None, None, "last"]
    for asked in found[1:3]:
        assert isinstance(asked.request, ApiError) and asked.request.status == 413
        assert asked.request.message.startswith(f"line {asked.number} is above the {LIMIT} bytes")
    assert len({asked.content for asked in found}) == 4


def test_a_custom_id_that_comes_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    lines = [line("a"), b"", line("b"), line("a", {"prompt": "another"})]
    with pytest.raises(BadInput, match="lines 1 and 4 have the same custom_id 'a'"):
        Index(write_lines(tmp_path / "in.jsonl", lines), LIMIT)


def test_lines_without_a_custom_id_are_many(tmp_path: Path) -> None:
    assert len(Index(write_lines(tmp_path / "in.jsonl", [b"{}", b"{}", b"nope"]), LIMIT)) == 3


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        check_file(tmp_path / "nothing")
    with pytest.raises(BadInput, match="no plain file"):
        check_file(tmp_path)
    (tmp_path / "empty").write_bytes(b"\n\n")
    with pytest.raises(BadInput, match="there is no request in it"):
        Index(tmp_path / "empty", LIMIT)


@pytest.mark.parametrize("later", [["a", "c"], ["a", "b", "c"], ["a"]])
def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path, later: list[str]) -> None:
    path = write_lines(tmp_path / "in.jsonl", [line("a"), line("b")])
    index = Index(path, LIMIT)
    write_lines(path, [line(name) for name in later])
    with pytest.raises(BadInput, match="while the batch ran"):
        list(index.undone())
