"""A tokenizer by itself, without the model it came with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.text import Tokenizer


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model, its weights left alone; or of a tokenizer.json by itself.

    Raises as `Tokenizer.from_gguf` and `Tokenizer.from_folder` do.
    """
    from pellucid.formats import open_checkpoint
    from pellucid.text import Tokenizer

    if path.is_dir() or path.name.endswith(".json"):
        return Tokenizer.from_folder(path)
    if path.suffix == ".safetensors":
        return Tokenizer.from_folder(path.parent)
    with open_checkpoint(path) as checkpoint:
        return Tokenizer.from_gguf(checkpoint.metadata, checkpoint.path)
