"""A single file, over a connection that does everything connections do."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid.core.errors import FetchError
from pellucid.hub import download as module
from pellucid.hub.progress import SilentProgress
from tests.python.hub.fake_hub import COMMIT, FakeHub, serve

DATA = os.urandom(300_000)


def fetch(hub: FakeHub, target: Path, headers: dict[str, str] | None = None) -> None:
    data = hub.files["file"]
    module.download(
        f"{hub.url}/{hub.repo}/resolve/{COMMIT}/file",
        target,
        digest=hashlib.sha256(data).hexdigest(),
        size=len(data),
        headers=headers or {},
        progress=SilentProgress(),
        label="file",
        pause=lambda seconds: None,
    )


@pytest.fixture
def target(hub: FakeHub, tmp_path: Path) -> Path:
    hub.files["file"] = DATA
    return tmp_path / "target" / "file"


def incomplete(target: Path) -> Path:
    return target.with_name("file.incomplete")


def test_brings_the_bytes_and_leaves_nothing_beside_them(hub: FakeHub, target: Path) -> None:
    fetch(hub, target)
    assert target.read_bytes() == DATA
    assert list(target.parent.iterdir()) == [target]


def test_an_empty_file_is_a_file(hub: FakeHub, target: Path) -> None:
    hub.files["file"] = b""
    incomplete(target).parent.mkdir(parents=True)
    fetch(hub, target)
    assert target.read_bytes() == b""


def test_goes_on_from_where_a_dropped_connection_stopped(hub: FakeHub, target: Path) -> None:
    hub.cut_after = [100_000, 50_000]
    fetch(hub, target)
    assert target.read_bytes() == DATA
    assert hub.file_requests("file") == [None, "bytes=100000-", "bytes=150000-"]


def test_goes_on_from_what_an_earlier_process_left(hub: FakeHub, target: Path) -> None:
    target.parent.mkdir(parents=True)
    incomplete(target).write_bytes(DATA[:123_456])
    fetch(hub, target)
    assert target.read_bytes() == DATA
    assert hub.file_requests("file") == ["bytes=123456-"]


def test_a_wrong_beginning_is_found_and_fetched_again(hub: FakeHub, target: Path) -> None:
    target.parent.mkdir(parents=True)
    incomplete(target).write_bytes(b"x" * 1000)
    fetch(hub, target)
    assert target.read_bytes() == DATA
    assert hub.file_requests("file") == ["bytes=1000-", None]


def test_a_beginning_longer_than_the_file_is_dropped(hub: FakeHub, target: Path) -> None:
    target.parent.mkdir(parents=True)
    incomplete(target).write_bytes(DATA + b"more")
    fetch(hub, target)
    assert target.read_bytes() == DATA


def test_a_server_that_knows_no_ranges_sends_it_whole(hub: FakeHub, target: Path) -> None:
    hub.ignore_range = True
    hub.cut_after = [100_000]
    fetch(hub, target)
    assert target.read_bytes() == DATA


def test_waits_out_a_server_that_is_busy(hub: FakeHub, target: Path) -> None:
    hub.statuses = [503, 429, 500]
    fetch(hub, target)
    assert target.read_bytes() == DATA


def test_gives_up_when_nothing_comes(hub: FakeHub, target: Path) -> None:
    hub.statuses = [503] * 50
    with pytest.raises(FetchError, match="file: the server answered 503"):
        fetch(hub, target)
    assert len(hub.file_requests("file")) == module.MAX_FRUITLESS
    assert not target.exists()


def test_does_not_ask_again_after_a_plain_no(hub: FakeHub, target: Path) -> None:
    hub.statuses = [403]
    with pytest.raises(FetchError, match="answered 403"):
        fetch(hub, target)
    assert len(hub.file_requests("file")) == 1


def test_wrong_bytes_never_get_the_final_name(hub: FakeHub, target: Path) -> None:
    hub.sent_instead["file"] = DATA[:-1] + bytes([DATA[-1] ^ 1])
    with pytest.raises(FetchError, match="checksum"):
        fetch(hub, target)
    assert list(target.parent.iterdir()) == []


def test_more_bytes_than_announced_are_refused(hub: FakeHub, target: Path) -> None:
    hub.sent_instead["file"] = DATA + b"x" * 5_000_000
    with pytest.raises(FetchError, match="more than the announced"):
        fetch(hub, target)
    assert list(target.parent.iterdir()) == []


def test_fewer_bytes_than_announced_are_refused(hub: FakeHub, target: Path) -> None:
    hub.sent_instead["file"] = DATA[:1000]
    with pytest.raises(FetchError):
        fetch(hub, target)
    assert not target.exists()


def test_nobody_listens(hub: FakeHub, target: Path) -> None:
    hub.url = "http://127.0.0.1:9"
    with pytest.raises(FetchError, match="refused"):
        fetch(hub, target)


def test_a_token_is_not_shown_to_another_host(hub: FakeHub, target: Path) -> None:
    store = FakeHub(files={"file": DATA})
    server = serve(store)
    try:
        hub.redirect_to = store.url.replace("127.0.0.1", "localhost")
        fetch(hub, target, {"Authorization": "Bearer secret"})
    finally:
        server.shutdown()
        server.server_close()
    assert target.read_bytes() == DATA
    assert hub.authorizations == ["Bearer secret"]
    assert store.authorizations == [None]


def test_a_full_disk_is_said_before_a_byte_is_asked_for(
    hub: FakeHub, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(target.parents[1])._replace(free=1000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(FetchError, match="are needed in"):
        fetch(hub, target)
    assert hub.requests == []


def test_a_disk_that_fills_up_leaves_a_part_to_go_on_from(
    hub: FakeHub, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = Path.open

    class FullDisk:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> FullDisk:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, chunk: bytes) -> None:
            self.file.write(chunk[: len(chunk) // 2])
            raise OSError(28, "No space left on device")

    def open_on_full_disk(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = real_open(self, mode, *args, **kwargs)
        return FullDisk(file) if self.name.endswith(".incomplete") and mode == "wb" else file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_on_full_disk)
        with pytest.raises(FetchError, match="is full"):
            fetch(hub, target)
    assert not target.exists()
    left = incomplete(target).stat().st_size
    assert left > 0
    fetch(hub, target)
    assert target.read_bytes() == DATA
    assert hub.file_requests("file")[-1] == f"bytes={left}-"


def test_an_interruption_leaves_a_part_and_no_file(hub: FakeHub, target: Path) -> None:
    class Interrupting(SilentProgress):
        def bar(self, label: str, total: int) -> Any:
            from contextlib import nullcontext

            def interrupt(done: int) -> None:
                raise KeyboardInterrupt

            return nullcontext(interrupt)

    with pytest.raises(KeyboardInterrupt):
        module.download(
            f"{hub.url}/{hub.repo}/resolve/{COMMIT}/file",
            target,
            digest=hashlib.sha256(DATA).hexdigest(),
            size=len(DATA),
            headers={},
            progress=Interrupting(),
            label="file",
        )
    assert not target.exists()
    assert DATA.startswith(incomplete(target).read_bytes())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(0, 5000), max_size=6),
    left=st.binary(max_size=50) | st.integers(0, 3000),
    ignore_range=st.booleans(),
)
def test_whatever_happens_it_is_the_right_file_or_none(
    hub: FakeHub, tmp_path: Path, cuts: list[int], left: bytes | int, ignore_range: bool
) -> None:
    data = DATA[:2500]
    hub.files["file"] = data
    hub.cut_after, hub.ignore_range = list(cuts), ignore_range
    target = tmp_path / "target" / "file"
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir()
    incomplete(target).write_bytes(data[:left] if isinstance(left, int) else left)
    try:
        fetch(hub, target)
    except FetchError:
        assert not target.exists()
    else:
        assert target.read_bytes() == data
