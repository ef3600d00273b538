"""Model folders: one file, shards, the layout of a hub cache."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pellucid.formats import open_checkpoint

VALUES = {f"layer.{i}": np.full((2, 3), i, dtype=np.float32) for i in range(4)}
CONFIG = {"architectures": ["X"], "hidden_size": 3, "rope_theta": 1e4, "rope_scaling": None}


def write_config(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))


def write_shards(folder: Path, n_shards: int) -> None:
    weight_map = {}
    for shard in range(n_shards):
        name = f"model-{shard + 1:05}-of-{n_shards:05}.safetensors"
        part = {key: VALUES[key] for key in list(VALUES)[shard::n_shards]}
        save_file(part, folder / name, {"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 96}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def assert_holds_the_values(folder: Path) -> None:
    with open_checkpoint(folder) as checkpoint:
        assert dict(checkpoint.metadata) == CONFIG
        assert set(checkpoint.tensors) == set(VALUES)
        for name, values in VALUES.items():
            np.testing.assert_array_equal(checkpoint.read(name), values)


def test_a_single_file(tmp_path: Path) -> None:
    write_config(tmp_path)
    save_file(VALUES, tmp_path / "model.safetensors")
    assert_holds_the_values(tmp_path)


def test_shards(tmp_path: Path) -> None:
    for n_shards in (1, 2, 4):
        folder = tmp_path / str(n_shards)
        write_config(folder)
        write_shards(folder, n_shards)
        assert_holds_the_values(folder)
        with open_checkpoint(folder) as checkpoint:
            assert len(checkpoint.files) == n_shards
            assert checkpoint.notes == {"format": "pt"}


def test_a_bare_file_finds_the_configuration_beside_it(tmp_path: Path) -> None:
    save_file(VALUES, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path / "model.safetensors") as checkpoint:
        assert dict(checkpoint.metadata) == {}
    write_config(tmp_path)
    with open_checkpoint(tmp_path / "model.safetensors") as checkpoint:
        assert dict(checkpoint.metadata) == CONFIG


def test_links_within_the_folder_and_to_the_folder(tmp_path: Path) -> None:
    write_config(tmp_path / "model")
    save_file(VALUES, tmp_path / "model" / "weights")
    (tmp_path / "model" / "model.safetensors").symlink_to("weights")
    assert_holds_the_values(tmp_path / "model")
    (tmp_path / "other").symlink_to("model")
    assert_holds_the_values(tmp_path / "other")


def test_a_hub_cache_links_to_its_own_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    write_config(snapshot)
    blobs.mkdir()
    (snapshot / "config.json").rename(blobs / "1")
    save_file(VALUES, blobs / "2")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    (snapshot / "model.safetensors").symlink_to("../../blobs/2")
    assert_holds_the_values(snapshot)
    subfolder = snapshot / "part"
    subfolder.mkdir()
    (subfolder / "config.json").symlink_to("../../../blobs/1")
    (subfolder / "model.safetensors").symlink_to("../../../blobs/2")
    assert_holds_the_values(subfolder)
