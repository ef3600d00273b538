"""Ray, where it is wanted: an extra, and quiet."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from pellucid.core.errors import BadInput


def ray_for(what: str) -> Any:
    """The module `ray`. Raises `BadInput` naming the extra if it is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput(f"{what} needs Ray, which is not installed: pip install 'pellucid[ray]'")
    # Read at its import, by this process and by those that it starts.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Else it says at each start what it will do one day with workers that ask for no GPU.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    return ray


def alone_here() -> None:
    """A cluster that is started by this process listens on this machine alone. Before Ray is
    imported."""
    # Ray's switch for clusters of several machines; without it, it takes the loopback address.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
