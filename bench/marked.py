"""Tables in pages of this project that a script writes from results, between two marks."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Marked:
    """The place of `name` in `page`, between the lines `begin` and `end`."""

    page: Path
    name: str
    begin: str
    end: str

    def replaced(self, text: str, block: str) -> str:
        """`text` with `block` between its marks. Raises `ValueError` if it has none."""
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(f"{self.page.name} has no {self.begin} and {self.end}")
        return f"{before}{self.begin}\n{block}\n{self.end}{after}"

    def write(self, block: str) -> None:
        """Put `block` there; with --check among the arguments, end with 1 if it is not."""
        text = self.page.read_text(encoding="utf-8")
        wanted = self.replaced(text, block)
        if "--check" in sys.argv[1:]:
            sys.exit(0 if text == wanted else f"{self.page.name}: {self.name} is out of date")
        self.page.write_text(wanted, encoding="utf-8")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """What the JSON files of `folder` hold, in the order of their names."""
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    return [json.loads(path.read_text()) for path in paths]
