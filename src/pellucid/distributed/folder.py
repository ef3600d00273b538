"""The folder that a cluster of our own has while it lasts."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "pellucid-ray-"
_HELD: Final = "held"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A new one, short by name as sockets lie in it; removed at the end. Those that processes left
    which were killed are removed too: whoever has one holds a lock in it."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / _HELD).open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.stat().st_uid == os.getuid() and _is_free(folder / _HELD):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is going, or has no lock yet
            continue


def _is_free(lock: Path) -> bool:
    with lock.open("r+") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
