"""The vocabulary of operations that models are written in, and its backends.

`vocabulary.Ops` states every operation with its equation; `reference` is NumPy in float32 and
defines what is right; `native` is C++ and fast. `backend(name)` gives one by name.
"""

from __future__ import annotations

from pellucid.core.errors import BadInput
from pellucid.ops.vocabulary import Ops

BACKENDS = ("reference", "native")

__all__ = ["BACKENDS", "Ops", "backend"]


def backend(
    name: str,
    *,
    threads: int | None = None,
    kv_dtype: str | None = None,
    activations: str | None = None,
) -> Ops:
    """A fresh instance of the backend called `name`.

    `threads` compute a step (default: the cores available to the process); `kv_dtype` is how keys
    and values are kept, by the names of `pellucid.costs.kv_types` (default: "f16" on `native`,
    "f32" on `reference`); `activations` is what products of quantised weights read, "int8" (the
    default), "bf16" or "f32" on `native`, always "f32" on `reference`.

    Raises `BadInput` for a name that is not in `BACKENDS`, or an option that the backend lacks.
    """
    if name == "reference":
        from pellucid.ops.reference import ReferenceOps

        if threads is not None:
            raise BadInput("threads: the reference backend has none to set; leave it out")
        if activations not in (None, "f32"):
            raise BadInput(f"activations {activations!r}: the reference backend has f32 alone")
        return ReferenceOps(kv_dtype or "f32")
    if name == "native":
        from pellucid.ops.native import NativeOps

        return NativeOps(threads=threads, kv_dtype=kv_dtype or "f16", activations=activations or "")
    raise BadInput(f"backend {name!r} is unknown: choose one of {', '.join(BACKENDS)}")
