"""Attacks on the safetensors reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attacks.attack import Attack, of_bytes
from attacks.safetensors_file import GOOD_DATA, entry, good_header, safetensors_file


def safetensors_attacks() -> list[Attack]:
    return [*_cut_short(), *_lengths(), *_json(), *_entries(), *_ranges()]


def _file(name: str, header: dict[str, Any] | str | bytes, error: str) -> Attack:
    return of_bytes(name, lambda: safetensors_file(header, GOOD_DATA), error, f"{name}.safetensors")


def _changed(name: str, tensor: str, value: Any, error: str) -> Attack:
    return _file(name, {**good_header(), tensor: value}, error)


def _cut_short() -> Iterator[Attack]:
    whole = safetensors_file(good_header(), GOOD_DATA)
    data = len(whole) - len(GOOD_DATA)
    for cut in (0, 1, 7, 8, 9, 40, data - 1, data, data + 1, data + 24, data + 40, len(whole) - 1):
        yield of_bytes(
            f"cut-at-{cut}",
            lambda cut=cut: whole[:cut],  # type: ignore[misc]
            "empty|header length|ends at byte",
            f"cut-at-{cut}.safetensors",
        )


def _lengths() -> Iterator[Attack]:
    whole = safetensors_file(good_header(), GOOD_DATA)
    for length in (0, 1, len(whole), 10**8, 10**8 + 1, 1 << 63, (1 << 64) - 1):
        yield of_bytes(
            f"header-length-{length}",
            lambda length=length: length.to_bytes(8, "little") + whole[8:],  # type: ignore[misc]
            "header",
            f"header-length-{length}.safetensors",
        )
    yield Attack("header-of-200-mb", _huge_header, "header length")


def _huge_header(folder: Path) -> Path:
    """A sparse file: 200 MB that take no space."""
    path = folder / "huge.safetensors"
    with path.open("wb") as file:
        file.write((200_000_000).to_bytes(8, "little") + b"{")
        file.truncate(300_000_000)
    return path


def _json() -> Iterator[Attack]:
    yield _file("header-not-json", "{" + "\0" * 100, "header")
    yield _file("header-a-list", "[]", "does not begin with '{'")
    yield _file("header-spaces-first", " {}", "does not begin with '{'")
    yield _file("header-bad-utf8", b'{"a\xff": 1}', r"header \(byte 3\).*UTF-8")
    yield _file("header-lists-deep", '{"a":' + "[" * 90_000 + "]" * 90_000 + "}", "nested too deep")
    yield _file("header-objects-deep", '{"a":' * 90_000 + "1" + "}" * 90_000, "nested too deep")
    yield _file("header-empty-lists", '{"a":[' + "[]," * 200_000 + "[]]}", "more than 100000 lists")
    yield _file("header-many-values", '{"a":[' + "0," * 1_500_000 + "0]}", "more than 1200000")
    yield _file("header-long-number", '{"a":' + "9" * 100_000 + "}", "number that is too long")
    yield _file("header-nan", '{"a":NaN}', "holds NaN")
    good = json.dumps(good_header())
    again = json.dumps(entry("F32", [2, 3], 0, 24))
    yield _file(
        "tensor-name-twice", f'{good[:-1]}, "a.weight": {again}}}', "'a.weight' occurs twice"
    )
    twice = good.replace('"shape": [2, 3]', '"shape": [2, 3], "shape": [3, 2]')
    yield _file("key-in-tensor-twice", twice, "'shape' occurs twice")


def _entries() -> Iterator[Attack]:
    values: tuple[Any, ...] = (1, None, [], "F32", {}, {"dtype": "F32"})
    for value in values:
        name = f"entry-{type(value).__name__}-{len(str(value))}"
        yield _changed(name, "a.weight", value, "'a.weight'.*must have dtype")
    extra = {**entry("F32", [2, 3], 0, 24), "strides": [3, 1]}
    yield _changed("entry-with-more", "a.weight", extra, "nothing else")
    yield _changed("dtype-unknown", "a.weight", entry("F31", [2, 3], 0, 24), "'F31' is unknown")
    yield _changed("dtype-number", "a.weight", entry(32, [2, 3], 0, 24), "dtype: must be a string")
    bad = (-1, 1.5, True, "2", None, 1 << 63, 10**30)
    for dim in bad:
        yield _changed(
            f"dim-{dim}", "a.weight", entry("F32", [dim, 3], 0, 24), "shape.*whole numbers"
        )
    yield _changed("rank-9", "a.weight", entry("F32", [1] * 9, 0, 24), "shape.*at most 8")
    yield _changed("shape-number", "a.weight", entry("F32", 6, 0, 24), "shape.*must be a list")
    wraps = entry("F32", [1 << 32, 1 << 32], 0, 24)
    yield _changed("shape-wraps", "a.weight", wraps, r"more than 2\^48 elements")
    zero = entry("F32", [0, 1 << 62], 0, 0)
    yield _changed("shape-empty-and-huge", "a.weight", zero, r"more than 2\^48 elements")
    bad_notes: tuple[Any, ...] = (1, [], {"a": 1}, {"a": {}})
    for notes in bad_notes:
        name = f"notes-{type(notes).__name__}-{len(str(notes))}"
        yield _changed(name, "__metadata__", notes, "__metadata__: must map strings to strings")
    yield _changed("tensor-without-name", "", entry("F32", [0], 0, 0), "empty name")


def _ranges() -> Iterator[Attack]:
    for begin, end in ((24, 0), (-24, 0), (0, 24.0), (0, None)):
        value = entry("F32", [2, 3], begin, end)
        yield _changed(f"range-{begin}-{end}", "a.weight", value, "data_offsets")
    three = {**entry("F32", [2, 3], 0, 24), "data_offsets": [0, 12, 24]}
    yield _changed("range-of-three", "a.weight", three, "data_offsets")
    for end in (57, 1 << 40, (1 << 63) - 1):
        value = entry("BF16", [8], 40, end)
        yield _changed(f"range-to-{end}", "c.weight", value, "data_offsets: ends at byte")
    yield _changed("range-too-short", "a.weight", entry("F32", [2, 3], 0, 20), "takes 24.*range 20")
    yield _changed("range-too-long", "a.weight", entry("F32", [2, 3], 0, 28), "takes 24.*range 28")
    yield _changed("ranges-overlap", "b.weight", entry("F16", [2, 4], 16, 32), "overlaps")
    yield _changed("empty-within", "d.weight", entry("F32", [0], 8, 8), "'d.weight'.*overlaps")
    yield _changed("ranges-the-same", "c.weight", entry("BF16", [8], 24, 40), "overlaps")
    rest = {name: value for name, value in good_header().items() if name != "b.weight"}
    yield _file("hole-between", rest, "16 bytes before it belong to no tensor")
    rest = {name: value for name, value in good_header().items() if name != "a.weight"}
    yield _file("hole-before", rest, "24 bytes before it belong to no tensor")
    rest = {name: value for name, value in good_header().items() if name != "c.weight"}
    yield _file("hole-after", rest, "16 bytes after the last tensor belong to no tensor")
    yield _file("nothing-but-data", "{}", "56 bytes after the last tensor")
