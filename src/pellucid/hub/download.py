"""One file over HTTP: resumed, bounded, checked, and under its final name only when it is right.

Invariants:

1. The final name appears by one rename, after size and digest were found right.
2. Bytes received so far lie beside it as `NAME.incomplete`; the next attempt, in this process or a
   later one, goes on from there.
3. No more bytes are written than were announced.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pellucid.core.errors import FetchError
from pellucid.hub.progress import Progress, Report
from pellucid.hub.verify import Hasher, hash_file, remember

# Attempts that bring no byte further before we give up; one that does brings the count back to 0.
MAX_FRUITLESS = 4
TIMEOUT_S = 30.0
_RETRY_STATUS = {408, 429, 500, 502, 503, 504}


class _DroppedError(Exception):
    """The connection ended early; what has arrived is kept."""


def download(
    url: str,
    target: Path,
    *,
    digest: str,
    size: int,
    headers: Mapping[str, str],
    progress: Progress,
    label: str,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Fetches `url` to `target`. Raises `FetchError` with the reason, in one line."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.incomplete")
    try:
        _check_space(partial, size)
        resumed = partial.exists()
        for _ in range(2 if resumed else 1):  # an older part may be the wrong one: from the start
            with progress.bar(label, size) as report:
                _receive_all(url, partial, size, headers, report, pause)
            if _right(partial, digest, size, progress):
                partial.replace(target)
                remember(target, digest)
                return
            partial.unlink()
    except OSError as error:
        raise FetchError(f"{label}: {_os_reason(error, target.parent)}") from error
    except FetchError as error:
        raise FetchError(f"{label}: {error}") from error
    raise FetchError(
        f"{label}: the bytes received do not have the announced checksum: "
        "a proxy or mirror may be changing them; try again or use another mirror"
    )


def _receive_all(
    url: str,
    partial: Path,
    size: int,
    headers: Mapping[str, str],
    report: Report,
    pause: Callable[[float], None],
) -> None:
    """Asks again, from where it stopped, as long as that brings it further than ever before."""
    fruitless, furthest = 0, _length(partial)
    while True:
        try:
            _attempt(url, partial, size, headers, report)
            return
        except _DroppedError as dropped:
            fruitless = 0 if _length(partial) > furthest else fruitless + 1
            furthest = max(furthest, _length(partial))
            if fruitless >= MAX_FRUITLESS:
                raise FetchError(str(dropped)) from dropped
            pause(min(8.0, 0.5 * 2**fruitless))


def _attempt(
    url: str, partial: Path, size: int, headers: Mapping[str, str], report: Report
) -> None:
    """One request for what is missing; raises `_DroppedError` when less arrives."""
    from huggingface_hub import get_session
    from huggingface_hub.errors import HfHubHTTPError

    # The HTTP client's own base error: huggingface_hub 1 builds on httpx, 2 on httpx2.
    transport_error: type[Exception] = HfHubHTTPError.__bases__[0]
    done = _length(partial)
    if done > size:
        partial.unlink()
        done = 0
    if done == size:
        partial.touch()
        return
    wanted = {**headers, "Accept-Encoding": "identity"}
    if done:
        wanted["Range"] = f"bytes={done}-"
    try:
        with get_session().stream("GET", url, headers=wanted, timeout=TIMEOUT_S) as response:
            _receive(response, partial, done, size, report)
    except transport_error as error:
        raise _DroppedError(str(error) or type(error).__name__) from error
    if _length(partial) < size:
        raise _DroppedError(f"the connection ended after {_length(partial)} of {size} bytes")


def _receive(response: Any, partial: Path, done: int, size: int, report: Report) -> None:
    status: int = response.status_code
    if status == 416:  # what we hold is not a beginning of what is there
        partial.unlink(missing_ok=True)
        raise _DroppedError("the server refused to go on from where the download stopped")
    if status in _RETRY_STATUS:
        raise _DroppedError(f"the server answered {status}")
    if status not in (200, 206):
        raise FetchError(f"the server answered {status}")
    if status == 200 or not _starts_at(response.headers.get("Content-Range", ""), done):
        if status == 206:
            partial.unlink(missing_ok=True)
            raise _DroppedError("the server sent another part than was asked for")
        done = 0
    with partial.open("ab" if done else "wb") as file:
        for chunk in response.iter_raw():
            done += len(chunk)
            if done > size:
                partial.unlink()
                raise FetchError(f"the server sent more than the announced {size} bytes")
            file.write(chunk)
            report(done)


def _starts_at(content_range: str, start: int) -> bool:
    return content_range.startswith(f"bytes {start}-")


def _right(partial: Path, digest: str, size: int, progress: Progress) -> bool:
    # Hashed from the disk and not in passing: this way it is the written bytes that are checked,
    # those of an earlier attempt among them.
    hasher = Hasher(digest, size)
    hash_file(hasher, partial, size, progress)
    return _length(partial) == size and hasher.matches()


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_space(partial: Path, size: int) -> None:
    free = shutil.disk_usage(partial.parent).free
    missing = size - _length(partial)
    if missing > free:
        raise FetchError(
            f"{missing / 1e6:.0f} MB are needed in {partial.parent} and "
            f"{free / 1e6:.0f} MB are free: make room, or move the cache (PELLUCID_HOME, HF_HOME)"
        )


def _os_reason(error: OSError, folder: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full: make room and run it again, it goes on from there"
    return f"{error.strerror or error}: {folder}"
