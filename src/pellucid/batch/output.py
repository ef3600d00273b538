"""OUT: a file that grows by whole lines, and tells after a crash which it has.

    open, lock --written--> [what is there is told; a torn end is cut off] --append--> ... --close

1. One process writes at a time: the file is locked as long as it is open, and by the system, so
   that a process that was killed holds nothing.
2. Lines are appended with one write and are on the disk when `append` returns. A kill leaves a line
   whole or its beginning; a loss of power also zeros in place of what was not on the disk yet.
   Both are at the end, and only they are cut off. A file with anything else in it is refused, and
   is left as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pellucid.batch.identity import PREFIX, LineId
from pellucid.core.errors import BadInput, PellucidError

BEGINNING = f'{{"id":"{PREFIX}'.encode()
"""Of every line."""

# Longer than any line that was ever written: a file without line ends is no file of ours.
_LONGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Written:
    """Line `number` of OUT, from 1."""

    number: int
    id: LineId
    custom_id: str | None
    answered: bool


class Output:
    """The file, locked. Read `written` to its end before anything is appended.

    `n_cut` is how many bytes of torn lines were cut off. Raises `BadInput` for a path that is no
    plain file, cannot be opened, or is being written by another process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_cut = 0
        self._fd = _open(path)
        self._size = 0  # of whole lines

    def written(self) -> Iterator[Written]:
        """The whole lines that are there; then a torn end is cut off. Raises `BadInput` for a file
        that is not what a batch writes, which is left as it was."""
        with os.fdopen(os.dup(self._fd), "rb") as file:
            number = 0
            while raw := file.readline(len(BEGINNING)):
                number += 1
                if raw == BEGINNING:
                    raw += file.readline(_LONGEST)
                found = _parse(number, raw)
                if found is None:
                    self._check_torn(number, raw, at_end=not file.read(1))
                    break
                yield found
                self._size += len(raw)
        self.n_cut = os.fstat(self._fd).st_size - self._size
        if self.n_cut:
            self._cut()

    def append(self, lines: bytes) -> None:
        """Returns when `lines` are on the disk. Raises `PellucidError`, with OUT as it was before,
        when they cannot be written."""
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next start cuts it
                self._cut()
            raise PellucidError(
                f"{self.path}: cannot be written: {error.strerror}; its lines are whole: mend that "
                "and give the same command again, which does the rest"
            ) from error
        self._size += len(lines)

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _cut(self) -> None:
        os.ftruncate(self._fd, self._size)
        os.fsync(self._fd)

    def _check_torn(self, number: int, raw: bytes, *, at_end: bool) -> None:
        """Raises `BadInput` unless `raw` is what a crash leaves."""
        if b"\0" in raw:
            ours = bool(self._size) or raw.startswith(BEGINNING)
        else:
            begins = BEGINNING.startswith(raw) or raw.startswith(BEGINNING)
            ours = begins and at_end and not raw.endswith(b"\n")
        if not ours:
            raise BadInput(
                f"{self.path}: line {number} was not written by a batch: nothing is changed; give "
                "OUT another name, or remove that file or line"
            )


def _open(path: Path) -> int:
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise BadInput(f"{path}: is no plain file, and a batch reads what it wrote: choose one")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise BadInput(f"{path}: cannot be opened for writing: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync_folder(path)
    except BlockingIOError:
        os.close(fd)
        raise BadInput(
            f"{path}: another batch is writing it: wait for that one, or choose another OUT"
        ) from None
    except OSError as error:
        os.close(fd)
        raise BadInput(
            f"{path}: cannot be locked: {error.strerror}: choose another disk"
        ) from error
    return fd


def _sync_folder(path: Path) -> None:
    """So that the name of a new file, too, is on the disk."""
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _parse(number: int, raw: bytes) -> Written | None:
    """None for what is no whole line of a batch."""
    if not raw.startswith(BEGINNING) or not raw.endswith(b"\n"):
        return None
    try:
        data: Any = json.loads(raw)
        own, custom_id = LineId.parse(data["id"]), data["custom_id"]
        answered = data["response"]["status_code"] == 200
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return None if own is None else Written(number, own, custom_id, answered)
