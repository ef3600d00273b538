"""Frames: how messages cross a socket. Eight bytes of length, little-endian, then a pickle."""

from __future__ import annotations

import pickle
import select
import socket
import struct
from collections.abc import Iterator
from typing import Any

from pellucid.core.errors import PellucidError

_LENGTH = struct.Struct("<Q")
MAX_FRAME = 1 << 30


def pack(message: Any) -> bytes:
    """A message as the bytes of its frame."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    if len(body) > MAX_FRAME:
        raise PellucidError(f"a message of {len(body)} bytes is above {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Messages from bytes as they arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that `data` completes. Raises `PellucidError` for what is no frame."""
        rest = self._rest
        rest += data
        start = 0
        with memoryview(rest) as view:
            while (end := _end_of(view, start)) <= len(view):
                with view[start + _LENGTH.size : end] as body:
                    message = pickle.loads(body)  # noqa: S301 - from our own child, see the package
                start = end
                yield message
        del rest[:start]


def read_frame(sock: socket.socket) -> Any:
    """The next message, waited for; `EOFError` when the other end is gone."""
    # A thread asleep in `recv` would be woken whenever the other end has read what we wrote.
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    waiting.poll()
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size))
    if length > MAX_FRAME:
        raise EOFError
    return pickle.loads(_read(sock, length))  # noqa: S301 - from our own parent, see the package


def _end_of(view: memoryview, start: int) -> int:
    """Where the frame at `start` ends, as far as that is known."""
    if len(view) - start < _LENGTH.size:
        return start + _LENGTH.size
    (length,) = _LENGTH.unpack_from(view, start)
    if length > MAX_FRAME:
        raise PellucidError("the engine process sent what is no message")
    return int(start + _LENGTH.size + length)


def _read(sock: socket.socket, n: int) -> bytearray:
    data = bytearray(n)
    with memoryview(data) as view:
        filled = 0
        while filled < n:
            try:
                count = sock.recv_into(view[filled:])
            except OSError as error:
                raise EOFError from error
            if not count:
                raise EOFError
            filled += count
    return data
