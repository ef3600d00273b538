"""A writer of safetensors files from whatever header it is given, good or bad."""

from __future__ import annotations

import json
from typing import Any


def safetensors_file(header: dict[str, Any] | str | bytes, data: bytes) -> bytes:
    """The header's length, the header (encoded as JSON unless it is text already), the data."""
    if isinstance(header, dict):
        header = json.dumps(header)
    text = header.encode() if isinstance(header, str) else header
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def good_header() -> dict[str, Any]:
    """Three tensors in 56 bytes."""
    return {
        "__metadata__": {"format": "pt"},
        "a.weight": entry("F32", [2, 3], 0, 24),
        "b.weight": entry("F16", [2, 4], 24, 40),
        "c.weight": entry("BF16", [8], 40, 56),
    }


GOOD_DATA = bytes(range(56))
