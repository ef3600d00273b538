"""Block sizes and type numbers against the gguf package's own table."""

from __future__ import annotations

import gguf
import pytest

from pellucid.quant.types import (
    FIRST_SAFETENSORS_ONLY,
    LAYOUTS,
    LISTED_LAYOUTS,
    TensorType,
    byte_count,
    layout,
)

IN_GGUF = [t for t in TensorType if t < FIRST_SAFETENSORS_ONLY]


@pytest.mark.parametrize("type", IN_GGUF, ids=lambda t: t.name)
def test_number_and_size_are_those_of_gguf(type: TensorType) -> None:
    theirs = gguf.GGMLQuantizationType[type.name]
    assert type == theirs
    assert (layout(type).elements, layout(type).nbytes) == gguf.GGML_QUANT_SIZES[theirs]


def test_every_type_has_exactly_one_layout() -> None:
    assert set(LAYOUTS) | set(LISTED_LAYOUTS) == set(TensorType)
    assert not set(LAYOUTS) & set(LISTED_LAYOUTS)


def test_byte_count_of_rows() -> None:
    assert byte_count(TensorType.Q4_K, (3, 512)) == 3 * 2 * 144
    assert byte_count(TensorType.F16, ()) == 2
    assert byte_count(TensorType.F32, (0, 5)) == 0
    with pytest.raises(ValueError, match="rows of 33 elements do not divide"):
        byte_count(TensorType.Q4_0, (32, 33))
