"""Attacks by the files of a model folder, and by what is no model at all."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attacks.attack import Attack
from attacks.safetensors_file import GOOD_DATA, entry, good_header, safetensors_file

INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00002.safetensors"
OTHER = "model-00002-of-00002.safetensors"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


def folder_attacks() -> list[Attack]:
    return [*_index(), *_links(), *_config(), *_pickles(), *_not_models()]


def _good_single(folder: Path) -> Path:
    """A folder whose containers are sound."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(safetensors_file(good_header(), GOOD_DATA))
    return model


def good_sharded(folder: Path) -> Path:
    """A good sharded folder."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    for shard, tensor in ((SHARD, "a"), (OTHER, "b")):
        header = {f"{tensor}.weight": entry("F32", [2, 7], 0, 56)}
        (model / shard).write_bytes(safetensors_file(header, GOOD_DATA))
    _write_index(model, {"a.weight": SHARD, "b.weight": OTHER})
    return model


def _write_index(model: Path, weight_map: Any) -> None:
    (model / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _indexed(name: str, weight_map: Any, error: str) -> Attack:
    def write(folder: Path) -> Path:
        model = good_sharded(folder)
        (folder / "secret.safetensors").write_bytes(safetensors_file(good_header(), GOOD_DATA))
        _write_index(model, weight_map)
        return model

    return Attack(name, write, error)


def _index() -> Iterator[Attack]:
    places = {
        "parent": "../secret.safetensors",
        "nested": f"x/../{SHARD}",
        "here": f"./{SHARD}",
        "absolute": "/etc/secret.safetensors",
        "backslash": "..\\secret.safetensors",
        "drive": "C:secret.safetensors",
        "nul": f"{SHARD}\0.safetensors",
        "newline": "a\n.safetensors",
        "surrogate": "\udc80.safetensors",
        "hidden": ".safetensors",
        "long": "x" * 300 + ".safetensors",
        "passwd": "/etc/passwd",
        "config": "config.json",
        "itself": INDEX,
        "number": 7,
        "null": None,
        "list": [SHARD],
    }
    for name, place in places.items():
        weight_map = {"a.weight": place, "b.weight": OTHER}
        yield _indexed(f"index-{name}", weight_map, "is not the name of a safetensors file")
    missing = {"a.weight": SHARD, "b.weight": "model-00003-of-00002.safetensors"}
    yield _indexed("index-shard-missing", missing, "No such file")
    wrong = {"a.weight": SHARD, "b.weight": SHARD}
    yield _indexed("index-tensor-elsewhere", wrong, "'b.weight': is not in model-00001")
    many = {f"t{i}": f"{i}.safetensors" for i in range(10_001)}
    yield _indexed("index-10001-shards", many, "names 10001 files")
    lots = {f"t{i}": SHARD for i in range(131_073)}
    yield _indexed("index-131073-tensors", lots, "more than 131072 values")
    bad_maps: tuple[Any, ...] = ({}, [], None, "x")
    for bad in bad_maps:
        yield _indexed(f"index-map-{bad}", bad, "weight_map: must map")
    twice = f'{{"weight_map": {{"a": "{SHARD}", "a": "{OTHER}"}}}}'
    yield _with_file("index-key-twice", INDEX, twice.encode(), "'a' occurs twice", good_sharded)
    deep = b'{"weight_map":' * 50_000
    yield _with_file("index-deep", INDEX, deep, "nested too deeply", good_sharded)


def _with_file(
    name: str,
    file: str,
    data: bytes,
    error: str,
    good: Callable[[Path], Path] = _good_single,
) -> Attack:
    def write(folder: Path) -> Path:
        model = good(folder)
        (model / file).write_bytes(data)
        return model

    return Attack(name, write, error)


def _links() -> Iterator[Attack]:
    for file in ("model.safetensors", "config.json"):
        yield Attack(f"link-out-{file}", lambda f, n=file: _link_out(f, n), "out of the folder")  # type: ignore[misc]
        yield Attack(f"link-loop-{file}", lambda f, n=file: _link_loop(f, n), file)  # type: ignore[misc]
    yield Attack("link-out-shard", _shard_link_out, "out of the folder")
    yield Attack("shard-a-folder", _shard_folder, "not a regular file|directory")
    yield Attack("blobs-of-another", _foreign_blobs, "out of the folder")


def _link_out(folder: Path, name: str) -> Path:
    model = _good_single(folder)
    (model / name).rename(folder / "outside")
    (model / name).symlink_to("../outside")
    return model


def _link_loop(folder: Path, name: str) -> Path:
    model = _good_single(folder)
    (model / name).unlink()
    (model / name).symlink_to("loop")
    (model / "loop").symlink_to(name)
    return model


def _shard_link_out(folder: Path) -> Path:
    model = good_sharded(folder)
    (model / OTHER).rename(folder / "outside")
    (model / OTHER).symlink_to(folder / "outside")
    return model


def _shard_folder(folder: Path) -> Path:
    model = good_sharded(folder)
    (model / OTHER).unlink()
    (model / OTHER).mkdir()
    return model


def _foreign_blobs(folder: Path) -> Path:
    """A folder that looks like a hub snapshot, linking to the blobs of another model."""
    blobs = folder / "models--other" / "blobs"
    snapshot = folder / "models--mine" / "snapshots" / "main"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    (blobs / "weights").write_bytes(safetensors_file(good_header(), GOOD_DATA))
    (snapshot / "model.safetensors").symlink_to("../../../models--other/blobs/weights")
    return snapshot


def _config() -> Iterator[Attack]:
    config = "config.json"
    yield _with_file("config-bad-utf8", config, b'{"a": "\xff"}', "not valid UTF-8")
    yield _with_file("config-empty", config, b"", "config.json.*JSON")
    yield _with_file("config-list", config, b"[]", "is not an object")
    yield _with_file("config-cut", config, b'{"model_type": "lla', "config.json.*JSON")
    yield _with_file("config-deep", config, b"[" * 90_000, "nested too deeply")
    yield _with_file("config-nan", config, b'{"rms_norm_eps": NaN}', "holds NaN")
    yield _with_file("config-infinity", config, b'{"rope_theta": -Infinity}', "holds -Infinity")
    twice = b'{"hidden_size": 1, "hidden_size": 2}'
    yield _with_file("config-key-twice", config, twice, "'hidden_size' occurs twice")
    yield _with_file("config-long-number", config, b'{"a": ' + b"9" * 9999 + b"}", "too long")
    yield Attack("config-of-100-mb", _huge_config, "has 100000000 bytes")
    yield Attack("config-missing", _config_missing, "config.json.*No such file")


def _huge_config(folder: Path) -> Path:
    model = _good_single(folder)
    with (model / "config.json").open("wb") as file:
        file.truncate(100_000_000)
    return model


def _config_missing(folder: Path) -> Path:
    model = _good_single(folder)
    (model / "config.json").unlink()
    return model


class _Bomb:
    """Unpickling it would make a folder named by `MARK` in the working directory."""

    MARK = "pickle-was-run"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.MARK,)


MARK = _Bomb.MARK


def _pickles() -> Iterator[Attack]:
    for protocol in range(6):
        bomb = pickle.dumps(_Bomb(), protocol=protocol)
        for suffix in (".bin", ".pt", ".pth", ".ckpt"):
            name = f"pickle-{protocol}{suffix}"
            yield Attack(name, lambda f, n=name, b=bomb: _plain(f, n, b), "is a pickle checkpoint")  # type: ignore[misc]
    bomb = pickle.dumps(_Bomb())
    for name in ("pickle.safetensors", "pickle.gguf", "pickle"):
        yield Attack(name, lambda f, n=name: _plain(f, n, bomb), "is a pickle checkpoint")  # type: ignore[misc]
    yield Attack("pickle-in-zip", _zipped, "is a pickle checkpoint")
    yield Attack("pickle-folder", _pickle_folder, "pytorch_model.bin.*is a pickle checkpoint")


def _plain(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _zipped(folder: Path) -> Path:
    """What torch.save writes: a zip archive around a pickle."""
    path = folder / "model.safetensors"
    with zipfile.ZipFile(path, "w") as archive:
        record = zipfile.ZipInfo("archive/data.pkl", (1980, 1, 1, 0, 0, 0))
        archive.writestr(record, pickle.dumps(_Bomb()))
    return path


def _pickle_folder(folder: Path) -> Path:
    model = _good_single(folder)
    (model / "model.safetensors").rename(model / "other")
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(_Bomb()))
    return model


def _not_models() -> Iterator[Attack]:
    files = {
        "page.gguf": (b"<!DOCTYPE html><html>no such model</html>", "neither GGUF nor safetensors"),
        "text.txt": (b"hello", "neither GGUF nor safetensors"),
        "byte": (b"\x80", "neither GGUF nor safetensors"),
        "zeros.gguf": (bytes(4096), "neither GGUF nor safetensors"),
        "lfs.gguf": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        "old.gguf": (b"tjgg\3\0\0\0", "neither GGUF nor safetensors"),
    }
    for name, (data, error) in files.items():
        yield Attack(f"not-{name}", lambda f, n=name, d=data: _plain(f, n, d), error)  # type: ignore[misc]
    yield Attack("nothing-there", lambda folder: folder / "none.gguf", "No such file")
    yield Attack("empty-folder", lambda folder: folder, "holds neither")
    yield Attack("a-pipe", _pipe, "not a regular file")
    yield Attack("a-device", lambda folder: Path("/dev/zero"), "not a regular file")
    yield Attack("a-name-too-long", lambda folder: folder / ("x" * 5000), "cannot be opened")
    yield Attack("a-name-with-nul", lambda folder: folder / "a\0b", "cannot be opened")


def _pipe(folder: Path) -> Path:
    path = folder / "pipe.gguf"
    os.mkfifo(path)
    return path
