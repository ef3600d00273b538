"""A short soak on the tiny model: traffic of every kind, and nothing is left of it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from http_streams import served
from soak import Soak


def test_nothing_is_left_of_random_traffic(tiny_path: Path, tmp_path: Path) -> None:
    flags = ("--backend", "reference", "--kv-cache-memory", "1MiB", "--no-access-log")
    with served(tiny_path, tmp_path / "log", *flags) as server:
        soak = Soak(server, random.Random(0))
        asyncio.run(soak.run(8, lambda number: number == 12, 40))
        told = soak.check()
    assert told["statuses"][200] > 100
    assert told["statuses"][400] > 50
    assert told["left"]
