"""Whatever the bytes: a file opens, or is refused by one line, and nothing else.

The same mutations ran for many minutes in development; see the lab log.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attacks.gguf_file import GgufFile, good_file
from attacks.safetensors_file import GOOD_DATA, good_header, safetensors_file
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.formats import open_checkpoint
from pellucid.formats.inspect import describe
from pellucid.quant.types import READABLE_TYPES

EDGES = [0, 1, 2, 7, 8, 9, 31, 32, 33, 127, 128, 255, 256, 1 << 16, 1 << 31, (1 << 32) - 1]
EDGES += [1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1]
GOOD = good_file()
LABELS = [label for label, data in GOOD.fields.items() if data and "data" not in label]
NUMBERS = [label for label in LABELS if len(GOOD.fields[label]) in (4, 8)]


def edge(draw: st.DrawFn, size: int) -> bytes:
    value = draw(st.sampled_from(EDGES) | st.integers(0, (1 << 64) - 1))
    return struct.pack("<Q", value)[:size]


@st.composite
def mutated_gguf(draw: st.DrawFn) -> bytes:
    """A good file with some numbers replaced, fields replaced, dropped, swapped or doubled."""
    fields = dict(GOOD.fields)
    for _ in range(draw(st.integers(1, 4))):
        label = draw(st.sampled_from(LABELS))
        match draw(st.sampled_from(["number", "number", "bytes", "drop", "swap", "double"])):
            case "number":
                label = draw(st.sampled_from(NUMBERS))
                fields[label] = edge(draw, len(GOOD.fields[label]))
            case "bytes":
                fields[label] = draw(st.binary(max_size=40))
            case "drop":
                fields[label] = b""
            case "swap":
                other = draw(st.sampled_from(LABELS))
                fields[label], fields[other] = fields[other], fields[label]
            case "double":
                fields[label] *= 2
    return mangled(draw, GgufFile(fields).write())


def mangled(draw: st.DrawFn, data: bytes) -> bytes:
    """Perhaps some bytes overwritten, and perhaps the end cut off."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        if changed:
            changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    if draw(st.integers(0, 4)) == 0:
        del changed[draw(st.integers(0, len(changed))) :]
    return bytes(changed)


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.sampled_from(EDGES) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@st.composite
def mutated_safetensors(draw: st.DrawFn) -> bytes:
    """A good header with some values replaced, dropped or added, perhaps no longer JSON."""
    header = good_header()
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*good_header(), "new"]))
        key = draw(st.sampled_from(["dtype", "shape", "data_offsets", "more", None]))
        value = draw(JSON_VALUES | st.lists(st.sampled_from(EDGES), max_size=3))
        if key is None or not isinstance(header.get(name), dict):
            header[name] = value
        elif draw(st.booleans()):
            header[name][key] = value
        else:
            header[name].pop(key, None)
    return mangled(draw, safetensors_file(json.dumps(header), GOOD_DATA))


def check(path: Path, data: bytes) -> None:
    """Open, and if that succeeds read all there is."""
    path.write_bytes(data)
    try:
        with open_checkpoint(path) as checkpoint:
            for name, tensor in checkpoint.tensors.items():
                assert 0 <= tensor.offset <= tensor.stop <= len(data)
                assert checkpoint.raw(name).size == tensor.nbytes
                if tensor.type in READABLE_TYPES:
                    assert checkpoint.read(name).shape == tensor.shape
                    assert checkpoint.read(name).dtype == np.float32
            json.dumps(describe(checkpoint).to_json(), allow_nan=False)
    except BadInput as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 2_000
        str(error).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(data=mutated_gguf())
@settings(max_examples=300)
def test_mutated_gguf(data: bytes, folder: Path) -> None:
    check(folder / "a.gguf", data)


@given(data=mutated_safetensors())
@settings(max_examples=300)
def test_mutated_safetensors(data: bytes, folder: Path) -> None:
    check(folder / "a.safetensors", data)


@given(data=st.binary(max_size=300))
@settings(max_examples=150)
@pytest.mark.parametrize("start", [b"", b"GGUF\3\0\0\0", b"\x40\0\0\0\0\0\0\0{"], ids=repr)
def test_any_bytes(start: bytes, data: bytes, folder: Path) -> None:
    check(folder / "any", start + data)
