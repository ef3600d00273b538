"""What is said of a cluster before Ray is asked, and the folder of one of our own."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from pellucid.core.errors import BadInput
from pellucid.distributed.cluster import Cluster, _Said, _versions, connected
from pellucid.distributed.extra import ray_for
from pellucid.distributed.folder import own_folder

pytest.importorskip("ray")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nonsense", "HOST:PORT, or auto"),
        ("ray://127.0.0.1:10001", "HOST:PORT, or auto"),
        (":6379", "HOST:PORT, or auto"),
        ("127.0.0.1:99999999", "there is no Ray cluster"),
        ("no-such-host.invalid:6379", "there is no Ray cluster"),
    ],
)
def test_an_address_that_leads_nowhere_is_said_at_once(address: str, words: str) -> None:
    with pytest.raises(BadInput, match=words), connected(address, 1, "this test"):
        raise AssertionError


def test_a_port_that_nobody_listens_on_is_said_at_once() -> None:
    with socket.socket() as taken:  # and not listened on
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadInput, match="there is no Ray cluster"), connected(address, 1, "it"):
            raise AssertionError


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"--replicas needs Ray.*pellucid\[ray\]"):
        ray_for("--replicas")


def test_what_never_finds_room_is_refused() -> None:
    cluster = Cluster(own=False, nodes=(4, 3, 0))
    cluster.check_room(3, 2, "replicas")
    cluster.check_room(7, 1, "replicas")
    with pytest.raises(BadInput, match="the cluster has room for 3"):
        cluster.check_room(4, 2, "replicas")


def test_other_versions_are_named() -> None:
    """In the words of Ray's own check."""
    from ray._private.utils import check_version_info

    cluster = {"ray_version": "1.2.3", "python_version": "3.8.1"}
    with pytest.raises(RuntimeError) as raised:
        check_version_info(cluster, "here")
    said = _versions(str(raised.value), ray_for("this test"))
    assert "the cluster runs Ray 1.2.3, Python 3.8.1, and this is Ray " in said


def test_what_ray_prints_goes_to_the_log_and_what_we_print_does_not(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "pellucid.distributed")
    with redirect_stdout(_Said(sys.stdout)):
        print("ours", flush=True)
        ray_thread = threading.Thread(target=print, args=("theirs",), name="ray_print_logs")
        ray_thread.start()
        ray_thread.join()
    with redirect_stdout(_Said()):
        print("nobody's", flush=True)
    print("ours again")
    assert capsys.readouterr().out == "ours\nours again\n"
    assert [record.getMessage() for record in caplog.records] == ["Ray: theirs", "Ray: nobody's"]


def test_a_folder_goes_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with own_folder() as mine, own_folder() as other:
        (mine / "session").mkdir()
        assert mine.exists()
        assert other != mine
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import os, signal\n"
        "from pellucid.distributed.folder import own_folder\n"
        "with own_folder() as folder:\n"
        "    (folder / 'session').mkdir()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], env={"TMPDIR": str(tmp_path)}, check=False)
    [left] = tmp_path.iterdir()
    foreign = tmp_path / "pellucid-ray-starting"  # one that has no lock yet
    foreign.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with own_folder() as mine:
        assert not left.exists()
        with own_folder():
            assert mine.exists()
            assert foreign.exists()
