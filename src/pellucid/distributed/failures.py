"""Failures: how often in a row replicas of an application could not be made, over all its nodes.

    first edition:  made --fails--> raised at once, and the application with it
    later:          made --fails--> the n-th in a row waits, then is raised --> Serve makes another
                       `--is made--> forgotten

Serve makes a replica anew at once, for ever: a model whose file is gone would keep processors busy
for nothing. Counts are in the cluster's own store, as each try is a process of its own.
"""

from __future__ import annotations

from typing import Final

from ray.experimental import internal_kv

LONGEST_S: Final = 30.0
_NAMESPACE: Final = b"pellucid"


class Failures:
    """Those of the replicas of one `edition` of the application `name`."""

    def __init__(self, name: str, edition: int) -> None:
        self._key = f"{name}:{edition}".encode()

    def begin(self) -> None:
        """There were replicas of it: whatever fails from now on is tried again."""
        self._put(0)

    def add(self) -> float:
        """Another one. How many seconds to wait before the next."""
        before = self._get()
        if before is None:
            return 0.0
        self._put(before + 1)
        return min(LONGEST_S, 2.0**before)

    def none(self) -> None:
        """A replica was made."""
        if self._get():
            self._put(0)

    def forget(self) -> None:
        """The application, or this edition of it, has ended."""
        internal_kv._internal_kv_del(self._key, namespace=_NAMESPACE)

    def _get(self) -> int | None:
        found = internal_kv._internal_kv_get(self._key, namespace=_NAMESPACE)
        return None if found is None else int(found)

    def _put(self, count: int) -> None:
        internal_kv._internal_kv_put(self._key, b"%d" % count, namespace=_NAMESPACE)
