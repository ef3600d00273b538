"""Two minutes of traffic of every kind on the tiny model, and nothing is left of it.

SOAK_SECONDS is another length: `SOAK_SECONDS=1200 pytest tests/python/server/test_soak.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

from http_streams import served
from soak import Soak

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
ROUNDS = 12  # at least, on whatever machine
PAUSE_S = 0.25  # of a client: other tests run beside this one


def test_nothing_is_left_of_random_traffic(tiny_path: Path, tmp_path: Path) -> None:
    flags = ("--backend", "reference", "--kv-cache-memory", "1MiB", "--no-access-log")
    with served(tiny_path, tmp_path / "log", *flags) as server:
        soak = Soak(server, random.Random(0), PAUSE_S)
        end = time.monotonic() + SECONDS

        def enough(rounds: int) -> bool:
            return rounds >= ROUNDS and time.monotonic() >= end

        asyncio.run(soak.run(8, enough, 40))
        told = soak.check()
    assert told["statuses"][200] > 100
    assert told["statuses"][400] > 50
    assert told["left"]
