"""What a process has loaded for good is not looked at by the garbage collector again."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def at_rest() -> Iterator[None]:
    """The objects of the moment stay: full collections, which stop every answer while they last (30
    ms with a vocabulary of 49,152 tokens), pass over them meanwhile."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
