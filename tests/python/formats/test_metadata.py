"""Typed accessors: right values pass, wrong ones name file, key and offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.core.errors import FormatError
from pellucid.formats import Metadata

VALUES: dict[str, Any] = {
    "int": 7,
    "negative": -1,
    "float": 1.5,
    "inf": float("inf"),
    "bool": True,
    "text": "hello",
    "texts": ["a", "b"],
    "mixed": ["a", 1],
    "floats": np.array([1.5, 2.5], dtype=np.float32),
    "bytes": np.array([1, 2], dtype=np.uint8),
    "huge": np.array([1 << 63], dtype=np.uint64),
    "json_ints": [1, 2],
    "json_numbers": [1, 2.5],
    "json_huge": [1 << 70],
    "nested": [[1], [2]],
    "ragged": [[1], 2],
    "empty": [],
    "null": None,
    "object": {"a": 1},
    "bigger_than_float": 10**400,
}
ACCESSORS = ["integer", "text", "texts"]
ACCEPTED = {"integer": {"int"}, "text": {"text"}, "texts": {"texts", "empty"}}


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(Path("m.gguf"), VALUES, {"bytes": "array of uint8"}, {"bytes": 123})


@pytest.mark.parametrize("accessor", ACCESSORS)
@pytest.mark.parametrize("key", VALUES)
def test_each_accessor_takes_only_its_own(accessor: str, key: str, metadata: Metadata) -> None:
    read = getattr(metadata, accessor)
    if key in ACCEPTED[accessor]:
        assert np.array_equal(read(key), VALUES[key])
    else:
        with pytest.raises(FormatError, match=rf"^m\.gguf: key '{key}'.*(must|is missing)"):
            read(key)


@pytest.mark.parametrize("accessor", ACCESSORS)
def test_a_missing_key(accessor: str, metadata: Metadata) -> None:
    with pytest.raises(FormatError, match="'none': is missing"):
        getattr(metadata, accessor)("none")
    default = object()
    assert getattr(metadata, accessor)("none", default) is default
    assert getattr(metadata, accessor)("null", None) is None


def test_the_type_and_offset_of_the_file_are_named(metadata: Metadata) -> None:
    with pytest.raises(FormatError, match=r"'bytes' \(byte 123\): is array of uint8, must be"):
        metadata.texts("bytes")


def test_bounds_of_integers(metadata: Metadata) -> None:
    assert metadata.integer("negative", low=-1) == -1
    with pytest.raises(FormatError, match="is 7, must be from 0 to 6"):
        metadata.integer("int", high=6)


def test_it_is_a_mapping(metadata: Metadata) -> None:
    assert list(metadata) == list(VALUES) and len(metadata) == len(VALUES)
    assert "int" in metadata and metadata.get("none", 3) == 3
