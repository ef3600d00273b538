"""OUT: locked, grown by whole lines, and never taken for ours when it is not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pellucid.batch.identity import LineId, key_of
from pellucid.batch.output import Output
from pellucid.core.errors import BadInput, PellucidError
from pellucid.server.events import dumps


def out_line(custom_id: str, status: int = 200, text: str = "") -> bytes:
    own = LineId(b"mmmm", b"ssss", key_of(custom_id, 1), b"cccc")
    response = {"status_code": status, "request_id": own.request_id, "body": {"text": text}}
    return dumps({"id": str(own), "custom_id": custom_id, "response": response}) + b"\n"


def found_in(path: Path) -> tuple[list[str | None], int]:
    with Output(path) as output:
        return [written.custom_id for written in output.written()], output.n_cut


def test_what_was_appended_is_found(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with Output(path) as output:
        assert list(output.written()) == []
        output.append(out_line("a") + out_line("b", status=400))
        output.append(out_line("c"))
    with Output(path) as output:
        found = list(output.written())
    assert [(w.number, w.custom_id, w.answered) for w in found] == [
        (1, "a", True),
        (2, "b", False),
        (3, "c", True),
    ]


@pytest.mark.parametrize("torn", [b"{", out_line("c")[:-1], out_line("c")[:40], b"\0" * 5000])
def test_a_torn_end_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "out.jsonl"
    whole = out_line("a") + out_line("b")
    path.write_bytes(whole + torn)
    assert found_in(path) == (["a", "b"], len(torn))
    assert path.read_bytes() == whole


def test_a_block_that_a_loss_of_power_left_empty_is_cut_off_with_what_follows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.jsonl"
    lost = out_line("b", text="x" * 100).replace(b"x" * 50, b"\0" * 50)
    path.write_bytes(out_line("a") + lost + out_line("c"))
    assert found_in(path) == (["a"], len(lost) + len(out_line("c")))
    assert path.read_bytes() == out_line("a")


@pytest.mark.parametrize(
    "foreign",
    [
        b"precious text without an end",
        b"precious text\n",
        b"\n",
        b"\0\0\0\0",
        b'{"id": "batch_req_1", "custom_id": "a"}\n',
        out_line("a") + b"a note of mine",
        out_line("a") + b"\n" + out_line("b"),
        out_line("a").replace(b"batch_req_6d", b"batch_req_XX"),
        out_line("a")[:60] + b"\n" + out_line("b"),
    ],
)
def test_a_file_of_anything_else_is_refused_and_left_alone(tmp_path: Path, foreign: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(foreign)
    with pytest.raises(BadInput, match=r"line \d was not written by a batch"):
        found_in(path)
    assert path.read_bytes() == foreign


def test_a_line_longer_than_any_of_ours_is_not_taken_for_a_torn_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(out_line("a", text="x" * 300) + out_line("b"))
    monkeypatch.setattr("pellucid.batch.output._LONGEST", 200)
    before = path.read_bytes()
    with pytest.raises(BadInput, match="line 1 was not written by a batch"):
        found_in(path)
    assert path.read_bytes() == before


def test_only_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with Output(path), pytest.raises(BadInput, match="another batch is writing it"):
        Output(path)
    Output(path).close()


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no plain file"):
        Output(tmp_path)
    with pytest.raises(BadInput, match="cannot be opened for writing: No such file"):
        Output(tmp_path / "no" / "out.jsonl")


def test_a_full_disk_leaves_whole_lines_and_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    real = os.write

    def write(fd: int, data: Any) -> int:
        if len(data) < 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:50])

    with Output(path) as output:
        list(output.written())
        output.append(out_line("a"))
        monkeypatch.setattr(os, "write", write)
        with pytest.raises(PellucidError, match=r"No space left.*the same command again"):
            output.append(out_line("b"))
        monkeypatch.undo()
        assert path.read_bytes() == out_line("a")
        output.append(out_line("c"))
    assert path.read_bytes() == out_line("a") + out_line("c")
