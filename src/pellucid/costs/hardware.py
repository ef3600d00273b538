"""Machines that are not at hand: a small table with sources, or a machine given by its numbers."""

from __future__ import annotations

import difflib
import json
import math
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pellucid.core.errors import BadInput
from pellucid.costs.roofline import Limits

_NUMBERS = re.compile(r"(?P<amount>\d{1,9}(?:\.\d{1,6})?)\s*(?P<unit>[a-z/]+)")
_FORM = "3.35TB/s, or 3.35TB/s,989TFLOPS,80GB"
_BANDWIDTHS = {"gb/s": 1e9, "tb/s": 1e12}
_ARITHMETIC = {"gflops": 1e9, "tflops": 1e12, "pflops": 1e15}
_MEMORIES = {"gb": 1e9, "tb": 1e12}


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for one hour of one chip, by a seller's list of that date."""

    usd_per_hour: float
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """One chip or socket: bytes of memory (None: not said), bytes a second, operations a second by
    type ("f32", "f16", "int8"), where that was read and when, and what an hour costs somewhere."""

    name: str
    what: str
    memory: float | None
    bandwidth: float
    operations: dict[str, float]
    sources: tuple[str, ...] = ()
    date: str = ""
    computed: str = ""
    price: Price | None = None

    def limits(self, bits: float) -> Limits:
        """For weights of so many bits. Those of 8 and fewer are multiplied as int8 (or fp8) where
        the machine has that, others as f16, or f32 where they are wider."""
        kind = "int8" if bits <= 9 else "f16" if bits <= 16.5 else "f32"
        order = ("f32", "f16", "int8")[: 1 + ("f32", "f16", "int8").index(kind)]
        for name in reversed(order):
            if name in self.operations:
                return self._limits(name)
        if self.operations:  # nothing as wide: what is narrower is an upper limit all the same
            return self._limits(next(iter(self.operations)))
        return self._limits("")

    def _limits(self, kind: str) -> Limits:
        operations = self.operations.get(kind, math.inf)
        return Limits(self.what, self.bandwidth, operations, kind or "not stated", "stated")


@cache
def table() -> tuple[Hardware, ...]:
    """Every row of the table."""
    text = files("pellucid.costs").joinpath("hardware.json").read_text("utf-8")
    return tuple(_row(row) for row in json.loads(text)["rows"])


def find_hardware(asked: str) -> Hardware:
    """A row by its name or another name of it, or a machine by its numbers (`3TB/s`).

    Raises `BadInput` with the names that are near, and all of them.
    """
    word = " ".join(asked.lower().split())
    if not word:
        raise BadInput("--hardware: the name is empty")
    names = _names()
    if found := names.get(_spelt(word)):
        return found
    if word[0].isdigit() and "/s" in word:
        return _by_numbers(asked, word)
    near = difflib.get_close_matches(_spelt(word), names, 3, 0.5)
    named = f"did you mean {', '.join(near)}? " if near else ""
    known = ", ".join(row.name for row in table())
    raise BadInput(
        f"--hardware {asked[:60]!r} is not in the table: {named}It has {known}; or {_FORM}"
    )


def _names() -> dict[str, Hardware]:
    text = files("pellucid.costs").joinpath("hardware.json").read_text("utf-8")
    rows = zip(json.loads(text)["rows"], table(), strict=True)
    return {_spelt(name): row for raw, row in rows for name in (raw["name"], *raw["also"])}


def _spelt(name: str) -> str:
    """However its words are set apart."""
    return "-".join(re.split(r"[\s_-]+", name.lower()))


def _row(row: dict[str, Any]) -> Hardware:
    return Hardware(
        row["name"],
        row["what"],
        row["memory_gb"] * 1e9,
        row["gb_per_s"] * 1e9,
        {kind: tera * 1e12 for kind, tera in row["tera"].items()},
        tuple(row["sources"]),
        row["date"],
        row.get("computed", ""),
        Price(**row["price"]) if "price" in row else None,
    )


def _by_numbers(asked: str, word: str) -> Hardware:
    """Raises `BadInput` for a part that is no number with a unit."""
    bandwidth = operations = memory = None
    for part in word.replace(" ", "").split(","):
        match = _NUMBERS.fullmatch(part)
        unit = match["unit"] if match else ""
        amount = float(match["amount"]) if match else 0.0
        if unit in _BANDWIDTHS and bandwidth is None:
            bandwidth = amount * _BANDWIDTHS[unit]
        elif unit in _ARITHMETIC and operations is None:
            operations = amount * _ARITHMETIC[unit]
        elif unit in _MEMORIES and memory is None:
            memory = amount * _MEMORIES[unit]
        else:
            raise BadInput(f"--hardware {asked[:60]!r}: {part!r} is not understood: write {_FORM}")
    if not bandwidth or operations == 0 or memory == 0:
        raise BadInput(f"--hardware {asked[:60]!r}: 0 is no limit: write {_FORM}")
    of = {} if operations is None else {"f16": operations}
    return Hardware(asked.strip(), f"a machine of {asked.strip()}", memory, bandwidth, of)
