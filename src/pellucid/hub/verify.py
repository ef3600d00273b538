"""Are these the bytes that were meant?

A digest is either SHA-256 (large files on the hub, and ours) or git's SHA-1 of a blob (small files
on the hub: SHA-1 of b"blob <size>\\0" and the bytes). They are told apart by their length.

A file is hashed in full when it is first used and whenever its size or time of change differs from
the record of the last check; otherwise the record stands, so that starting up costs one `stat`.
Records go by the file that links lead to.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from pellucid.hub.places import home, write_atomically
from pellucid.hub.progress import Progress, Report

CHUNK = 1 << 20
# Below this a bar would only flicker.
_SHOW_FROM = 64 << 20


class Hasher:
    """The running digest of a file whose final size is known."""

    def __init__(self, digest: str, size: int) -> None:
        self._hash = hashlib.sha256() if len(digest) == 64 else hashlib.sha1(usedforsecurity=False)
        if len(digest) != 64:
            self._hash.update(b"blob %d\0" % size)
        self._expected = digest

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def matches(self) -> bool:
        return self._hash.hexdigest() == self._expected

    def read(self, path: Path, report: Report) -> int:
        """Takes in a whole file; the number of its bytes."""
        done = 0
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                self.update(chunk)
                done += len(chunk)
                report(done)
        return done


def is_intact(
    path: Path, digest: str, size: int | None, progress: Progress, *, again: bool = False
) -> bool:
    """Whether the file is there with the right bytes; `again` hashes it whatever is on record."""
    try:
        facts = path.stat()
    except OSError:
        return False
    if size is not None and facts.st_size != size:
        return False
    if not again and _recorded(path) == _record(path, facts, digest):
        return True
    hasher = Hasher(digest, facts.st_size)
    try:
        hash_file(hasher, path, facts.st_size, progress)
    except OSError:
        return False
    if not hasher.matches():
        with suppress(OSError):
            _record_path(path).unlink(missing_ok=True)
        return False
    remember(path, digest, facts)
    return True


def remember(path: Path, digest: str, facts: os.stat_result | None = None) -> None:
    """Notes that the file was found right. A home that cannot be written costs only time."""
    with suppress(OSError):
        record = _record(path, facts or path.stat(), digest)
        write_atomically(_record_path(path), json.dumps(record))


def hash_file(hasher: Hasher, path: Path, size: int, progress: Progress) -> None:
    """Takes a whole file of about `size` bytes into `hasher`, with a bar if that takes a while."""
    if size < _SHOW_FROM:
        hasher.read(path, lambda done: None)
        return
    with progress.bar(f"Checking {path.name}", size) as report:
        hasher.read(path, report)


def _record(path: Path, facts: os.stat_result, digest: str) -> dict[str, str | int]:
    return {
        "path": str(path.resolve()),
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "digest": digest,
    }


def _record_path(path: Path) -> Path:
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    return home() / "checked" / f"{name}.json"


def _recorded(path: Path) -> object:
    try:
        return json.loads(_record_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
