"""Hubs: one for the engine, and one for each replica that somebody looks at by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request

from pellucid.server.errors import ApiError
from pellucid.server.guard import Guard
from pellucid.server.live.hub import Hub
from pellucid.server.live.journeys import Journeys


class Hubs:
    """`first` is of the engine, or of whichever replica is shown to who names none."""

    def __init__(self, guard: Guard, journeys: Journeys, *, ids: bool) -> None:
        self._guard, self._journeys, self._ids = guard, journeys, ids
        self._named: dict[str, Hub] = {}
        self.first = Hub(guard, journeys, ids=ids)

    def of(self, request: Request) -> Hub:
        """That of the query's `replica`. Raises `ApiError` 404 for one that does not answer."""
        return self.named(request.query_params.get("replica"))

    def named(self, name: str | None) -> Hub:
        """That of the replica of that name; None: the first."""
        if name is None:
            return self.first
        replicas = self._guard.replicas
        for gone in self._named.keys() - set(replicas):
            self._named.pop(gone).close()
        if name not in replicas:
            words = ", ".join(replicas) if replicas else "this server has one engine"
            raise ApiError(404, f"replica {name[:100]!r} does not answer: {words}", param="replica")
        if name not in self._named:
            self._named[name] = self._new(name)
        return self._named[name]

    def _new(self, name: str) -> Hub:
        return Hub(
            self._guard.replica(name),
            self._journeys,
            ids=self._ids,
            is_gone=lambda: name not in self._guard.replicas,
        )

    def told(self, request: Request) -> dict[str, Any] | None:
        """Which replicas there are, and which one a request is shown; None where there is one
        engine."""
        names = self._guard.replicas
        if not names:
            return None
        asked = request.query_params.get("replica")
        return {"names": names, "shown": asked or self._guard.replica_shown}

    def close(self) -> None:
        """End what viewers are sent: the server is shutting down."""
        for hub in self._all():
            hub.close()

    def _all(self) -> Iterator[Hub]:
        yield self.first
        yield from self._named.values()
