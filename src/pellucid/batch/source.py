"""IN: a file of requests, read line by line, however long its lines are."""

from __future__ import annotations

import codecs
import hashlib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pellucid.core.errors import BadInput
from pellucid.server.errors import ApiError, bad_request
from pellucid.server.reading import json_object, validate
from pellucid.server.wire.batch import MAX_CUSTOM_ID, BatchLine

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Asked:
    """Line `number` of IN, from 1: a request, or why it is none.

    `custom_id` is None where none could be read; `content` digests the line's bytes.
    """

    number: int
    custom_id: str | None
    content: bytes
    request: BatchLine | ApiError


def requests(path: Path, limit: int) -> Iterator[Asked]:
    """The lines of `path` that are not blank. One of more than `limit` bytes is passed over without
    being held. Raises `BadInput` for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            yield from _requests(file, limit)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def check_file(path: Path) -> None:
    """Raises `BadInput` unless `path` is a file that can be read twice."""
    try:
        kind = path.stat().st_mode
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(kind):
        raise BadInput(f"{path}: is no plain file, and a batch is read more than once: save it")


def _requests(file: BinaryIO, limit: int) -> Iterator[Asked]:
    number = 0
    while raw := file.readline(limit + 1):
        number += 1
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if len(raw) > limit and not raw.endswith(b"\n"):
            yield _too_long(file, number, raw, limit)
        elif text := raw.strip():
            yield _read(number, text)


def _too_long(file: BinaryIO, number: int, raw: bytes, limit: int) -> Asked:
    digest = hashlib.blake2b(raw, digest_size=4)
    while raw and not raw.endswith(b"\n"):
        raw = file.readline(_PIECE)
        digest.update(raw)
    error = ApiError(413, f"line {number} is above the {limit} bytes that are read: send less")
    return Asked(number, None, digest.digest(), error)


def _read(number: int, text: bytes) -> Asked:
    content = hashlib.blake2b(text, digest_size=4).digest()
    try:
        text.decode()  # said as what it is, before JSON is looked for
        data = json_object(text, f"line {number}")
    except UnicodeDecodeError as error:
        wrong = bad_request(
            f"line {number} is no UTF-8 at byte {error.start}: save it as UTF-8", None
        )
        return Asked(number, None, content, wrong)
    except ApiError as error:
        return Asked(number, None, content, error)
    try:
        request: BatchLine | ApiError = validate(data, BatchLine, lenient=False).asked
    except ApiError as error:
        request = error
    return Asked(number, _custom_id(data.get("custom_id")), content, request)


def _custom_id(given: object) -> str | None:
    """One that can be repeated in OUT, also of a line that is refused."""
    usable = isinstance(given, str) and 0 < len(given) <= MAX_CUSTOM_ID
    return str(given) if usable else None
