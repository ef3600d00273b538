"""FleetMetrics: what `/metrics` says of each replica, and of where requests went."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from pellucid.distributed.placement import WHYS
from pellucid.distributed.report import Fleet
from pellucid.server.rising import Rising


class FleetMetrics:
    """Series of one model. A replica that is gone has none any more."""

    def __init__(self, registry: CollectorRegistry, prefix: str, model_name: str) -> None:
        self._model = model_name
        labels = ("model_name",)
        self._replicas = Gauge(
            prefix + "replicas", "Replicas that answer.", labels, registry=registry
        )
        each = (*labels, "replica")
        self._each = {
            "running_sequences": Gauge(
                prefix + "replica_requests_running", "Answers it computes.", each, registry=registry
            ),
            "waiting_sequences": Gauge(
                prefix + "replica_requests_waiting", "Answers that wait.", each, registry=registry
            ),
            "pages_owned": Gauge(
                prefix + "replica_kv_pages_owned", "Pages requests own.", each, registry=registry
            ),
        }
        placed = Counter(
            prefix + "replica_requests_placed",
            "Requests by why they went where they went.",
            (*labels, "why"),
            registry=registry,
        )
        self._placed = Rising({why: placed.labels(model_name, why) for why in WHYS})
        self._ends = Rising(
            {
                "retried": Counter(
                    prefix + "replica_requests_retried",
                    "Requests asked again as their replica had ended.",
                    labels,
                    registry=registry,
                ).labels(model_name),
                "lost": Counter(
                    prefix + "replica_requests_lost",
                    "Requests that ended with their replica.",
                    labels,
                    registry=registry,
                ).labels(model_name),
            }
        )

    def see(self, fleet: Fleet) -> None:
        """The replicas of now."""
        self._replicas.labels(self._model).set(len(fleet.reports))
        for field, gauge in self._each.items():
            gauge.clear()
            for report in fleet.reports:
                gauge.labels(self._model, report.name).set(getattr(report.stats, field))
        self._placed.read({why: fleet.placed.get(why, 0) for why in WHYS})
        self._ends.read({"retried": fleet.retried, "lost": fleet.lost})
