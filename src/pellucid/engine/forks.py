"""What a forked child inherits of an object with locks.

A child has none of its parent's other threads. A lock that one of them held would stay locked for
ever, around something half done: the object puts that right before anything else runs in the child.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

Owner = TypeVar("Owner")


def after_fork(owner: Owner, mend: Callable[[Owner], object]) -> None:
    """Have `mend(owner)` called in every forked child, as long as `owner` lives."""
    known = weakref.ref(owner)

    def in_child() -> None:
        inherited = known()
        if inherited is not None:
            mend(inherited)

    if hasattr(os, "register_at_fork"):  # systems that fork
        os.register_at_fork(after_in_child=in_child)
