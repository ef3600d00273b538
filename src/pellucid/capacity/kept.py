"""Calibrations, kept in the user's cache by machine, model and threads."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pellucid import __version__
from pellucid.capacity.fit import Calibration, Error
from pellucid.core.spec import ModelSpec
from pellucid.hub.places import home, write_atomically
from pellucid.simulate.pace import Pace
from pellucid.simulate.setup import Path as Between
from pellucid.simulate.times import TERMS

_FILE = "capacity.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """A calibration and when it was made (seconds since 1970)."""

    calibration: Calibration
    made_at: float


def key_of(processor: str, threads: int, spec: ModelSpec, weight_bytes: int, kv: str) -> str:
    """What step times depend on: another version, processor, number of threads, model, weight type
    or KV type has a calibration of its own."""
    size = f"{spec.family} of {spec.n_layers} x {spec.d_model}, {weight_bytes} bytes"
    return " / ".join((__version__, processor, f"{threads} threads", size, f"KV {kv}"))


def keep(key: str, calibration: Calibration, folder: Path | None = None) -> Path:
    """Returns the file. Raises `OSError` where it cannot be written."""
    path = (folder or home()) / _FILE
    known = _read(path)
    known[key] = {"made_at": time.time(), "terms": TERMS, **asdict(calibration)}
    write_atomically(path, json.dumps(known) + "\n")
    return path


def find(key: str, folder: Path | None = None) -> Kept | None:
    """None where there is none, or another version wrote it."""
    found = _read((folder or home()) / _FILE).get(key)
    if not isinstance(found, dict) or tuple(found.get("terms", ())) != TERMS:
        return None
    try:
        calibration = Calibration(
            _floats(found["seconds_each"]),
            Pace(_floats(found["pace"]["times"]), _floats(found["pace"]["work"])),
            Between(**{name: float(value) for name, value in found["path"].items()}),
            Error(**{name: float(value) for name, value in found["error"].items()}),
            int(found["steps"]),
            float(found["seconds"]),
        )
        return Kept(calibration, float(found["made_at"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _floats(values: Any) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    if not all(value >= 0 for value in found):
        raise ValueError("a time is not negative")
    return found


def _read(path: Path) -> dict[str, Any]:
    """What is kept; nothing where it cannot be read: it is measured again then."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
