"""The vocabulary of operations that models are written in, and its backends.

`vocabulary.Ops` states every operation with its equation; `reference` is NumPy in float32 and
defines what is right; `native` is C++ and fast. `backend(name)` gives one by name.
"""

from __future__ import annotations

from pellucid.core.errors import BadInput
from pellucid.ops.vocabulary import Ops

BACKENDS = ("reference", "native")

__all__ = ["BACKENDS", "Ops", "backend"]


def backend(name: str) -> Ops:
    """A fresh instance of the backend called `name`.

    Raises `BadInput` for a name that is not in `BACKENDS`.
    """
    if name == "reference":
        from pellucid.ops.reference import ReferenceOps

        return ReferenceOps()
    if name == "native":
        from pellucid.ops.native import NativeOps

        return NativeOps()
    raise BadInput(f"backend {name!r} is unknown: choose one of {', '.join(BACKENDS)}")
