"""What this machine offers to an engine."""

from __future__ import annotations

import os
import platform
from typing import Any

from pellucid.cli.output import in_bytes, table


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory in bytes, the instruction sets the native kernels choose by, each
    set of kernels with what speaks for or against it, and the one that was chosen.

    Raises `BadInput` when PELLUCID_SIMD asks for kernels that cannot run here.
    """
    from pellucid import __version__, _native
    from pellucid.core.errors import BadInput
    from pellucid.engine.machine import processor_name
    from pellucid.engine.memory import available_memory

    try:
        chosen = _native.matmul.chosen()
    except ValueError as error:
        raise BadInput(f"PELLUCID_SIMD: {error}") from error
    return {
        "pellucid": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor_name(),
        "architecture": platform.machine(),
        "cores": _cores(),
        "memory_available": available_memory(),
        "instruction_sets": dict(_native.cpu_features()),
        "kernels": [
            {"name": name, "usable": usable, "why": why}
            for name, usable, why in _native.matmul.considered()
        ],
        "kernels_chosen": chosen,
    }


def draw_machine(facts: dict[str, Any]) -> str:
    """The facts as a table, a line end at its end."""
    sets = facts["instruction_sets"]
    offered = [name for name, present in sets.items() if present]
    missing = [name for name, present in sets.items() if not present]
    rows = [
        ("pellucid", f"{facts['pellucid']}, Python {facts['python']}, {facts['system']}"),
        ("processor", f"{facts['processor']} ({facts['architecture']})"),
        ("cores", str(facts["cores"])),
        ("free memory", in_bytes(facts["memory_available"])),
        ("offers", " ".join(offered) or "none of the instruction sets that kernels choose by"),
    ]
    if missing:
        rows.append(("lacks", " ".join(missing)))
    rows.append(("kernels", facts["kernels_chosen"]))
    for kernels in facts["kernels"]:
        can = "can run" if kernels["usable"] else "cannot run"
        rows.append((f"  {kernels['name']}", f"{can}: {kernels['why']}"))
    return table(rows) + "\n"


def _cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
