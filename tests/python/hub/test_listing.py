from __future__ import annotations

import json
from pathlib import Path

import pytest

from pellucid.core.errors import BadInput
from pellucid.hub.listing import (
    SHARD_INDEX,
    Listing,
    RepositoryFile,
    is_safe_name,
    load_listing,
    pick_gguf,
    weight_files,
)
from pellucid.hub.names import HubModel

REPO = HubModel("owner/name")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"], "m-Q4_K_M.gguf"),
        (["m.q8_0.gguf", "m.q4_0.gguf"], "m.q4_0.gguf"),
        (["m-Q8_0.gguf", "mmproj-m-Q4_K_M.gguf"], "m-Q8_0.gguf"),
        (["m-Q4_K_M-00001-of-00002.gguf", "m-Q8_0.gguf"], "m-Q8_0.gguf"),
        (["b-odd.gguf", "a-odd.gguf"], "a-odd.gguf"),
        (["config.json", "model.safetensors", "m-Q4_K_M.gguf"], None),
        (["config.json", "m-Q4_K_M.gguf"], "m-Q4_K_M.gguf"),
        (["README.md"], None),
    ],
)
def test_picks_the_best_gguf_where_none_is_named(names: list[str], expected: str | None) -> None:
    assert pick_gguf(REPO, names) == expected


def test_picks_the_quantisation_that_is_named_and_no_longer_name() -> None:
    names = ["m-IQ4_NL.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "sub/Q4_K.gguf"]
    assert pick_gguf(HubModel("o/n", quant="q4_k_s"), names) == "m-Q4_K_S.gguf"
    assert pick_gguf(HubModel("o/n", quant="Q4_K"), names) == "sub/Q4_K.gguf"
    with pytest.raises(BadInput, match=r"holds no Q8_0 file; it holds m-IQ4_NL.gguf, m-Q4_K_M"):
        pick_gguf(HubModel("o/n", quant="Q8_0"), names)
    with pytest.raises(BadInput, match=r"holds no x.gguf"):
        pick_gguf(HubModel("o/n", file="x.gguf"), names)


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "", "a\\..\\b", "C:x", "a\0b", ".."]
)
def test_a_name_that_leaves_the_folder_is_not_safe(name: str) -> None:
    assert not is_safe_name(name)
    assert is_safe_name("sub/model-00001-of-00002.safetensors")


def test_weights_are_what_the_index_names(tmp_path: Path) -> None:
    index = tmp_path / SHARD_INDEX
    names = ["a.safetensors", "b.safetensors", "consolidated.safetensors", SHARD_INDEX]
    index.write_text(json.dumps({"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}}))
    assert weight_files(names, index, "o/n") == ["a.safetensors", "b.safetensors"]
    for bad in ({"x": "../../a.safetensors"}, {"x": "gone.safetensors"}, {"x": ["a"]}, {"x": 3}):
        index.write_text(json.dumps({"weight_map": bad}))
        with pytest.raises(BadInput):
            weight_files(names, index, "o/n")
    for damaged in ("", "[]", "{}", '{"weight_map": 3}', "\ud800"):
        index.write_bytes(damaged.encode("utf-8", "surrogatepass"))
        with pytest.raises(BadInput, match="damaged"):
            weight_files(names, index, "o/n")


def test_weights_without_an_index() -> None:
    single = ["model.safetensors", "consolidated.safetensors"]
    assert weight_files(single, None, "o/n") == ["model.safetensors"]
    assert weight_files(["odd.safetensors", "sub/x.safetensors"], None, "o/n") == [
        "odd.safetensors"
    ]
    with pytest.raises(BadInput, match="several"):
        weight_files(["a.safetensors", "b.safetensors"], None, "o/n")
    with pytest.raises(BadInput, match="pickle"):
        weight_files(["pytorch_model.bin"], None, "o/n")
    with pytest.raises(BadInput, match="neither"):
        weight_files(["README.md"], None, "o/n")


def test_a_listing_is_kept_and_a_damaged_one_is_no_listing() -> None:
    listing = Listing("owner/name", "0" * 40, (RepositoryFile("a", 3, "f" * 64),))
    assert load_listing("owner/name", "0" * 40) is None
    listing.save()
    assert load_listing("owner/name", "0" * 40) == listing
    from pellucid.hub.listing import _listing_path

    for damaged in ("", "[]", '{"files": [{"x": 1}]}'):
        _listing_path("owner/name", "0" * 40).write_text(damaged)
        assert load_listing("owner/name", "0" * 40) is None
