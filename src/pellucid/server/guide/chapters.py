"""The chapters of the guide, in order, and the files that they show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

CHAPTERS: Final = Path(__file__).parent / "chapters"
TITLE: Final = "From one token to a thousand requests"
_NAME: Final = re.compile(r"(\d\d)-([a-z-]+)\.md")
_TYPES: Final = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True, slots=True)
class Chapter:
    """`source` is Markdown; its first line is the title."""

    number: int
    name: str
    title: str
    source: str

    @property
    def minutes(self) -> int:
        """How long it takes to read, at 200 words a minute."""
        return max(1, round(len(self.source.split()) / 200))

    @property
    def opening(self) -> str:
        """Its first sentence, as text."""
        paragraph = " ".join(self.source.split("\n\n")[1].split())
        return re.split(r"(?<=[.?!]) ", paragraph)[0]


@cache
def chapters() -> dict[str, Chapter]:
    """By name, in order."""
    found = sorted(CHAPTERS.glob("*.md"))
    return {chapter.name: chapter for chapter in map(_read, found)}


@cache
def assets() -> dict[str, tuple[Path, str]]:
    """Files that chapters show, by their path under `assets/`: where each is, and its type."""
    folder = CHAPTERS / "assets"
    files = (path for path in folder.rglob("*") if path.suffix in _TYPES and path.is_file())
    return {path.relative_to(folder).as_posix(): (path, _TYPES[path.suffix]) for path in files}


def _read(path: Path) -> Chapter:
    match = _NAME.fullmatch(path.name)
    source = path.read_text("utf-8")
    first = source.partition("\n")[0]
    if match is None or not first.startswith("# "):
        raise ValueError(f"{path.name}: a chapter is named 01-name.md and begins with its title")
    return Chapter(int(match[1]), match[2], first[2:].strip(), source)
