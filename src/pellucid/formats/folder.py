"""A model folder: `config.json` and one or several safetensors files.

Nothing a file of the folder says leads out of the folder: names in the index are plain file names,
and a symbolic link must end in the folder or in the blob store of a hub cache that the folder
belongs to (`models--*/snapshots/...` beside `models--*/blobs`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.formats.limits import MAX_SHARDS, MAX_TENSORS
from pellucid.formats.shown import shown
from pellucid.formats.strict_json import read_json_object

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# AutoGPTQ's and AutoAWQ's own, and the method that each stands for.
_QUANTIZATION_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
PICKLE_REASON = (
    "is a pickle checkpoint, which can run any program when it is opened and is never read; "
    "use the model's safetensors or GGUF file"
)


def contained(folder: Path, name: str) -> Path:
    """The path of a file of the folder, with links followed and checked.

    Raises `FormatError` when the file is missing or its link leads out of the folder.
    """
    path = folder / name
    try:
        target = path.resolve(strict=True)
        root = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "is a link that leads back to itself"
        raise FormatError(path, "file", reason, "fetch the whole model again") from error
    blobs = [place.parent / "blobs" for place in root.parents if place.name == "snapshots"]
    if not any(target.is_relative_to(place) for place in (root, *blobs)):
        problem = f"is a link that leads out of the folder, to {target}"
        raise FormatError(path, "file", problem, "copy the file into the folder")
    return path


def read_config(folder: Path) -> dict[str, Any]:
    """The parsed `config.json`, with what earlier tools wrote into a file of its own beside it: how
    the weights are quantised, as `quantization_config`."""
    config = read_json_object(contained(folder, CONFIG))
    for name, method in _QUANTIZATION_FILES.items():
        if config.get("quantization_config") is None and _exists(folder / name):
            own = read_json_object(contained(folder, name))
            config["quantization_config"] = {"quant_method": method, **own}
    return config


def weight_files(folder: Path) -> tuple[list[Path], dict[str, str] | None]:
    """The safetensors files of a folder, and for a sharded model the index: tensor -> file name.

    Raises `UnsupportedError` when there are only pickle files, `FormatError` when the index is
    hostile or a file is missing.
    """
    if _exists(folder / SINGLE):
        return [contained(folder, SINGLE)], None
    if not _exists(folder / INDEX):
        raise _no_weights(folder)
    weight_map = _weight_map(contained(folder, INDEX))
    names = sorted(set(weight_map.values()))
    return [contained(folder, name) for name in names], weight_map


def _exists(path: Path) -> bool:
    """Whether the folder has such an entry, be it a broken link."""
    return path.exists() or path.is_symlink()


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json_object(index, MAX_TENSORS).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(index, "weight_map", "must map tensor names to file names")
    for tensor, name in weight_map.items():
        if not _is_plain_name(name):
            field = f"weight_map[{shown(tensor)}]"
            problem = f"{shown(name)} is not the name of a safetensors file of the folder"
            raise FormatError(index, field, problem, "do not use this model unless you trust it")
    n_files = len(set(weight_map.values()))
    if n_files > MAX_SHARDS:
        problem = f"names {n_files} files, at most {MAX_SHARDS} are allowed"
        raise FormatError(index, "weight_map", problem)
    return weight_map


def _is_plain_name(name: Any) -> bool:
    return (
        isinstance(name, str)
        and name.endswith(".safetensors")
        and not name.startswith(".")
        and name.isprintable()
        and not any(c in "/\\:" for c in name)
        and len(name.encode()) <= 255
    )


def _no_weights(folder: Path) -> BadInput:
    files = sorted(path.name for path in folder.iterdir())
    pickles = [name for name in files if Path(name).suffix in PICKLE_SUFFIXES]
    if pickles:
        return UnsupportedError(f"{folder / pickles[0]}: {PICKLE_REASON}")
    ggufs = [name for name in files if name.endswith(".gguf")]
    if ggufs:
        return BadInput(f"{folder}: holds no {SINGLE}; name the GGUF file: {folder / ggufs[0]}")
    return BadInput(
        f"{folder}: holds neither {SINGLE} nor {INDEX}; give a .gguf file or a model folder"
    )
