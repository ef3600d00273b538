"""What an answer's id is made of, so that OUT tells by itself what it belongs to.

    batch_req_ MMMMMMMM SSSSSSSS KKKKKKKKKKKKKKKK CCCCCCCC

in hexadecimal: a digest of the model, of the settings, of the line's custom_id (its number, where
it has none), and of the line's bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "batch_req_"
_ID = re.compile(r"batch_req_([0-9a-f]{8})([0-9a-f]{8})([0-9a-f]{16})([0-9a-f]{8})")

# A model is told from others by pieces of its files, so that a large one is not read whole.
_PIECES, _PIECE = 64, 16 << 10


@dataclass(frozen=True, slots=True)
class LineId:
    """The parts of an id."""

    model: bytes
    settings: bytes
    key: bytes
    content: bytes

    def __str__(self) -> str:
        return PREFIX + (self.model + self.settings + self.key + self.content).hex()

    @property
    def request_id(self) -> str:
        """The id of the request itself."""
        return f"req_{(self.key + self.content).hex()}"

    @staticmethod
    def parse(text: object) -> LineId | None:
        """None for what is no such id."""
        found = _ID.fullmatch(text) if isinstance(text, str) else None
        return LineId(*map(bytes.fromhex, found.groups())) if found else None


def key_of(custom_id: str | None, number: int) -> bytes:
    """8 bytes that are a line's own."""
    own, kind = (str(number), b"number") if custom_id is None else (custom_id, b"custom_id")
    return hashlib.blake2b(own.encode(), digest_size=8, person=kind).digest()


def chance_of(seed: int, key: bytes) -> bytes:
    """What decides where a line would else draw at random, by the batch's seed (64 bits, taken
    modulo 2^64)."""
    own = (seed % (1 << 64)).to_bytes(8, "little")
    return hashlib.blake2b(key, key=own, digest_size=16).digest()


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """4 bytes of what decides answers beside the model and the request."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).digest()


def model_digest(path: Path) -> bytes:
    """4 bytes of a model's files: their sizes and pieces of them, and for a folder their names. The
    place of the model does not matter."""
    digest = hashlib.blake2b(digest_size=4)
    if path.is_dir():
        for file in sorted(file for file in path.iterdir() if file.is_file()):
            digest.update(file.name.encode() + b"\0")
            _add(digest, file)
    else:
        _add(digest, path)
    return digest.digest()


def _add(digest: hashlib.blake2b, path: Path) -> None:
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        for place in _places(size):
            file.seek(place)
            digest.update(file.read(_PIECE))


def _places(size: int) -> Iterator[int]:
    """Where pieces begin: spread evenly, from the beginning to the end."""
    if size <= _PIECES * _PIECE:
        yield from range(0, size, _PIECE)
        return
    for i in range(_PIECES):
        yield i * (size - _PIECE) // (_PIECES - 1)
