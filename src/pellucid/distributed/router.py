"""The request router that Ray Serve runs beside each handle: it asks the request's route."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pellucid.distributed.placement import Route


class PlacedRouter(RequestRouter):
    """Ranks replicas as `Placement` does. Requests without a route go to any."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        order = list(by_name)
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # before the next try
            route = _route_of(pending_request)
            if route is not None:
                order = route.rank(order)
        return [[by_name[name]] for name in order]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        route = _route_of(pending_request)
        if route is not None:
            route.routed(replica_id.unique_id)


def _route_of(pending: PendingRequest) -> Route | None:
    route = pending.kwargs.get("route")
    return route if isinstance(route, Route) else None
