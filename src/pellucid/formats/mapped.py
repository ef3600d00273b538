"""A file in memory by mapping: pages arrive when they are read and can be given back."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pellucid.core.errors import BadInput, FormatError


class MappedFile:
    """A read-only mapping of a regular file.

    `buffer` is the mapping, `data` the same bytes as a read-only uint8 array `[size]`. A file that
    another program shortens while it is mapped cannot be read safely; models are replaced by
    renaming, never rewritten in place.

    Raises `BadInput` when the file cannot be opened, `FormatError` when it is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = open_regular(path)
        try:
            self.size = os.fstat(descriptor).st_size
            if self.size == 0:
                raise FormatError(path, "file", "is empty (0 bytes)", "fetch it again")
            self.buffer = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise BadInput(f"{path}: cannot be mapped: {error.strerror}") from error
        finally:
            os.close(descriptor)
        self.data: npt.NDArray[np.uint8] = np.frombuffer(self.buffer, dtype=np.uint8)

    def release(self, start: int, stop: int) -> None:
        """Give the whole pages within bytes [start, stop) back; reading them again loads them."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        page = mmap.PAGESIZE
        first = -(-start // page) * page
        # The last page of the file belongs to nobody else, though it is not full.
        last = stop // page * page if stop < self.size else stop
        if first < last:
            self.buffer.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        """Unmap the file, or leave that to the last array which still looks into it."""
        self.data = np.empty(0, dtype=np.uint8)
        try:
            self.buffer.close()
        except BufferError:
            return


def open_regular(path: Path) -> int:
    """A descriptor of a regular file; a pipe or device is refused, since opening it could wait."""
    try:
        flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, os.O_RDONLY | flags)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{path}: cannot be opened: {reason}; check the path") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{path}: is not a regular file; give a model file or folder")
    return descriptor
