"""What an attack is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Stage = Literal["format", "tokenizer", "model"]


@dataclass(frozen=True)
class Attack:
    """A hostile file or folder.

    `write(folder)` makes it in an empty folder and returns the path to open. `error` is a regular
    expression that the one line of the error must contain. `stage` is the part that must refuse it.
    """

    name: str
    write: Callable[[Path], Path]
    error: str
    stage: Stage = "format"


def of_bytes(
    name: str, make: Callable[[], bytes], error: str, file_name: str, stage: Stage = "format"
) -> Attack:
    """An attack that is one file."""

    def write(folder: Path) -> Path:
        path = folder / file_name
        path.write_bytes(make())
        return path

    return Attack(name, write, error, stage)
