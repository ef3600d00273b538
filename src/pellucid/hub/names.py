"""What a user may write for a model.

    path/to/model.gguf, path/to/folder      used as it is
    smollm2-135m                            a short name of the catalogue
    OWNER/NAME                              a repository of the hub: config, tokenizer, safetensors;
                                            or its best GGUF file where it holds only those
    OWNER/NAME:Q4_K_M                       its GGUF file of that quantisation
    OWNER/NAME/FILE.gguf                    that file
    ...@REVISION                            a branch, tag or commit instead of main

A path that exists wins over everything else.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pellucid.core.errors import BadInput
from pellucid.hub.catalogue import CATALOGUE, Alias, Pinned

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HUB_ID = re.compile(
    rf"(?P<repo>{_PART}/{_PART})"
    r"(?:/(?P<file>[A-Za-z0-9._/ +-]+\.gguf))?"
    r"(?::(?P<quant>[A-Za-z0-9_.-]+))?"
    r"(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]*))?"
)
_MODEL_SUFFIXES = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub. At most one of `file` and `quant` is set."""

    repo: str
    revision: str = "main"
    file: str | None = None
    quant: str | None = None

    def __str__(self) -> str:
        name = self.repo
        if self.file:
            name += f"/{self.file}"
        if self.quant:
            name += f":{self.quant}"
        return name if self.revision == "main" else f"{name}@{self.revision}"


def parse_name(name: str) -> Path | Pinned | HubModel:
    """What `name` means. Raises `BadInput` saying what else it could be."""
    if not name or "\0" in name:
        raise BadInput("the model's name is empty: give a path, a hub id or a short name")
    path = Path(name).expanduser()
    if _exists(path):
        return path
    if (entry := CATALOGUE.get(name.lower())) is not None:
        return parse_hub_id(entry.hub_id) if isinstance(entry, Alias) else entry
    if _looks_like_path(name):
        raise BadInput(f"{name}: no such file or folder")
    if _HUB_ID.fullmatch(name):
        return parse_hub_id(name)
    raise BadInput(f"{name!r} is no model: {_suggestion(name)}")


def parse_hub_id(name: str) -> HubModel:
    """Reads OWNER/NAME[/FILE.gguf | :QUANT][@REVISION]."""
    match = _HUB_ID.fullmatch(name)
    if match is None or ".." in name:
        raise BadInput(
            f"{name!r} is no hub id: it is written OWNER/NAME, OWNER/NAME:QUANT or "
            "OWNER/NAME/FILE.gguf, each with @REVISION if wanted"
        )
    if match["file"] and match["quant"]:
        raise BadInput(f"{name!r} names both a file and a quantisation: give one of them")
    return HubModel(match["repo"], match["revision"] or "main", match["file"], match["quant"])


def is_model_name(word: str) -> bool:
    """Whether a lone word on the command line is meant as a model rather than as text."""
    path = Path(word).expanduser()
    if _exists(path / "config.json") or (word.endswith(_MODEL_SUFFIXES) and _exists(path)):
        return True
    if any(character.isspace() for character in word):
        return False
    known = word.lower() in CATALOGUE or _HUB_ID.fullmatch(word) is not None
    return known or word.endswith(_MODEL_SUFFIXES)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for a path is not one
        return False


def _looks_like_path(name: str) -> bool:
    if name.startswith((".", "/", "~")) or (os.sep != "/" and os.sep in name):
        return True
    # OWNER/NAME/FILE.gguf is a file of the hub; models/x.gguf was meant as a path.
    return name.endswith(_MODEL_SUFFIXES) and name.count("/") < 2


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name.lower(), CATALOGUE, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return (
        f"{meant}give a path that exists, a hub id (OWNER/NAME), or one of {', '.join(CATALOGUE)}"
    )
