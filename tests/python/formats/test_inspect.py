"""A description adds up, and JSON can hold it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from attacks.folder_attacks import good_sharded
from attacks.gguf_file import good_file

from pellucid.formats import Checkpoint, Metadata, open_checkpoint
from pellucid.formats.inspect import describe


def test_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(good_file().write())
    with open_checkpoint(path) as checkpoint:
        description = describe(checkpoint)
    assert (description.kind, description.architecture) == ("gguf", "llama")
    assert description.name == "a good file"
    assert description.file_bytes == path.stat().st_size
    assert [group.layer for group in description.groups] == [None, 0]
    outside, layer = description.groups
    assert [row.name for row in outside.tensors] == ["token_embd.weight", "output_norm.weight"]
    assert outside.tensors[0].shape == (262, 32) and outside.tensors[0].bits_per_weight == 8.5
    assert layer.elements == 32 + 32 * 32 * 2 + 16 * 32 * 2 + 32 + 32 * 64 * 3
    assert description.parameters == outside.elements + layer.elements
    assert description.weight_bytes == outside.bytes + layer.bytes
    assert sum(total.bytes for total in description.types) == description.weight_bytes
    assert sum(total.tensors for total in description.types) == 11
    assert description.types[0].type == "Q8_0"
    assert description.metadata["tokenizer.ggml.tokens"] == "262 values"
    assert json.loads(json.dumps(description.to_json(), allow_nan=False))["parameters"] > 0


def test_a_folder(tmp_path: Path) -> None:
    folder = good_sharded(tmp_path)
    with open_checkpoint(folder) as checkpoint:
        description = describe(checkpoint)
    assert description.architecture == "LlamaForCausalLM"
    assert description.name == folder.name
    assert len(description.files) == 2
    assert description.parameters == 28


def test_layers_of_each_naming(tmp_path: Path) -> None:
    from attacks.gguf_file import gguf_file, zeros

    names = ["model.layers.3.mlp.weight", "h.12.ln_1.bias", "transformer.blocks.0.w", "blk.7.w"]
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_file({}, [zeros(name, (1,)) for name in [*names, "wte.3"]]).write())
    with open_checkpoint(path) as checkpoint:
        assert [group.layer for group in describe(checkpoint).groups] == [None, 0, 3, 7, 12]


def test_metadata_is_short_and_fits_json() -> None:
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    values = {
        "nan": np.array([1, np.nan], dtype=np.float32),
        "inf": float("inf"),
        "many": np.zeros(17),
        "few": np.arange(3),
        "text": "x" * 300,
        "object": {"a": {"b": [1, {"c": 2}]}},
        "deep": deep,
        "labels": dict.fromkeys("abcdefghijklmnopq"),
    }
    checkpoint = Checkpoint(Path("m"), "gguf", Metadata(Path("m"), values), {}, [])
    metadata = describe(checkpoint).to_json()["metadata"]
    assert json.loads(json.dumps(metadata, allow_nan=False)) == {
        "nan": [1.0, "nan"],
        "inf": "inf",
        "many": "17 values",
        "few": [0, 1, 2],
        "text": "text of 300 characters",
        "object": {"a": {"b": [1, "1 values"]}},
        "deep": [[["1 values"]]],
        "labels": "17 values",
    }
