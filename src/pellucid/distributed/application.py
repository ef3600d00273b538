"""Application: the replicas as Ray Serve runs them.

    deploy --> STARTING --all are ready--> RUNNING --roll--> (one by one) --> RUNNING --end--> gone
                   `--one fails: raises what it raised

Serve keeps their number, asks after their health every `_HEALTH_S`, and starts another where one
has ended; one that cannot start takes its time (`Failures`). It has no proxy here: whoever asks
does so by the handle.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.schema import LoggingConfig

from pellucid.core import errors
from pellucid.core.errors import PellucidError
from pellucid.distributed.apart import apart
from pellucid.distributed.failures import Failures
from pellucid.distributed.replica import Opening, Replica

logger = logging.getLogger("pellucid.distributed")

_HEALTH_S: Final = 1.0
_FROZEN_S: Final = 20.0  # without an answer about its health, three times: the process is frozen
_LOOK_S: Final = 0.1
_END_S: Final = 30.0
_BACK_TRIES: Final = 1000
_DEPLOYMENT: Final = "engine"
_ROUTER: Final = "pellucid.distributed.router.PlacedRouter"
_ENDED: Final = "health check failed"
_OURS: Final = re.compile(r"pellucid\.core\.errors\.(\w+): (.*)")


@dataclass(frozen=True, slots=True)
class Scale:
    """From `least` to `most` replicas; where these differ, so many that each has about `target`
    requests, more after `up_s` seconds in which that is so, fewer after `down_s`."""

    least: int
    most: int
    target: float
    up_s: float
    down_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """name: the application's, its own in the cluster. cpus: that Ray counts for a replica.
    requests: the most that one replica is given at once. drain_s: that those have that run, when a
    replica is to end."""

    name: str
    opening: Opening
    scale: Scale
    cpus: float
    requests: int
    drain_s: float


class Application:
    """`handle` is the way to the replicas, once `deploy` has returned."""

    handle: Any

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    async def deploy(self) -> None:
        """Have the replicas there are to be, ready. Raises what keeps the first from starting."""
        _hush()
        start = functools.partial(serve.start, proxy_location="Disabled", logging_config=_quiet())
        await apart(start)
        _hush()
        await self._run()

    async def roll(self) -> None:
        """Replace every replica by a new one, a part of them at a time. Those that are replaced end
        what they have begun. Raises what keeps new ones from starting; it goes on with the old ones
        then, and with as many of them as before."""
        plan, before = self.plan, self._failures()
        opening = replace(self.plan.opening, edition=self.plan.opening.edition + 1)
        self.plan = replace(plan, opening=opening)
        try:
            await self._run()
        except PellucidError:
            self.plan = plan  # Serve would leave it at that, with too few and none started again
            await self._ask_for(tries=_BACK_TRIES)
            raise
        await apart(before.forget)

    async def end(self) -> None:
        """The replicas end, and Serve with them if nobody else uses it; as far as they do in time:
        a cluster that does not answer keeps nobody here."""
        with contextlib.suppress(TimeoutError):
            await apart(self._end, self.plan.drain_s + _END_S)

    async def trouble(self) -> str | None:
        """Why there are fewer replicas than there are to be, in Serve's words; None if all is well
        or Serve does not say."""
        try:
            found = await apart(serve.status, _END_S)
        except Exception:  # a cluster that does not answer is told of elsewhere
            return None
        state = found.applications.get(self.plan.name)
        deployment = state.deployments.get(_DEPLOYMENT) if state is not None else None
        if deployment is None or not deployment.message:
            return None
        if not _OURS.search(deployment.message) and _ENDED in deployment.message:
            return "a replica has ended, and another is started"
        return str(_why(deployment.message))

    async def _run(self) -> None:
        await self._ask_for(tries=1)
        await self._running()
        await apart(self._failures().begin)

    async def _ask_for(self, tries: int) -> None:
        """Have Serve do as the plan says. It gives up once so many replicas could not start while
        there is none of this edition."""
        target = serve.RunTarget(
            target=self._bound(tries),
            name=self.plan.name,
            route_prefix=None,
            logging_config=_quiet(),
        )
        run = functools.partial(serve.run_many, [target], wait_for_applications_running=False)
        handles = await apart(run)
        _hush()
        self.handle = handles[0]

    def _failures(self) -> Failures:
        return Failures(self.plan.name, self.plan.opening.edition)

    def _bound(self, tries: int) -> Any:
        plan = self.plan
        scale = plan.scale
        number: dict[str, Any] = {"num_replicas": scale.least}
        if scale.most > scale.least:
            number = {"autoscaling_config": _autoscaling(scale)}
        deployment: Any = serve.deployment(Replica)
        return deployment.options(
            name=_DEPLOYMENT,
            ray_actor_options={"num_cpus": plan.cpus},
            max_ongoing_requests=plan.requests,
            health_check_period_s=_HEALTH_S,
            health_check_timeout_s=min(_FROZEN_S, plan.opening.hang_s),
            graceful_shutdown_timeout_s=plan.drain_s,
            graceful_shutdown_wait_loop_s=_LOOK_S,
            max_constructor_retry_count=tries,
            version=f"{plan.name} {plan.opening.edition}",  # what is of the same one stays
            _internal=True,
            request_router_config=_routing(),
            logging_config=_quiet(),
            **number,
        ).bind(plan.opening)

    async def _running(self) -> None:
        while True:
            found = await apart(serve.status)
            state = found.applications.get(self.plan.name)
            if state is not None:
                deployment = state.deployments.get(_DEPLOYMENT)
                if state.status == "RUNNING":
                    return
                if state.status in ("DEPLOY_FAILED", "UNHEALTHY"):
                    raise _why(f"{state.message}\n{deployment.message if deployment else ''}")
            await asyncio.sleep(_LOOK_S)

    def _end(self) -> None:
        with contextlib.suppress(Exception):  # a cluster that is gone has none of it left
            self._failures().forget()
            serve.delete(self.plan.name)
            if not serve.status().applications:
                serve.shutdown()  # type: ignore[no-untyped-call]


def _autoscaling(scale: Scale) -> AutoscalingConfig:
    return AutoscalingConfig(
        min_replicas=scale.least,
        max_replicas=scale.most,
        target_ongoing_requests=scale.target,
        upscale_delay_s=scale.up_s,
        downscale_delay_s=scale.down_s,
        metrics_interval_s=min(1.0, scale.up_s / 2),
        look_back_period_s=max(1.0, scale.up_s),
    )


def _routing() -> RequestRouterConfig:
    settings: dict[str, Any] = {"request_router_class": _ROUTER}
    return RequestRouterConfig(**settings)


def _quiet() -> LoggingConfig:
    return LoggingConfig(log_level="ERROR", enable_access_log=False)


def _hush() -> None:
    """Serve sets its logger anew whenever it starts something: what befalls replicas we say, and
    errors of its own go where ours do."""
    serving = logging.getLogger("ray.serve")
    if _is_grave not in serving.filters:
        serving.addFilter(_is_grave)
    for handler in list(serving.handlers):
        serving.removeHandler(handler)
    serving.propagate = True


def _is_grave(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _why(message: str) -> PellucidError:
    """What kept a replica from starting, as it was raised there."""
    found = _OURS.findall(message)
    if found:
        kind, words = found[-1]
        named = getattr(errors, kind, PellucidError)
        error: PellucidError = named.__new__(named)
        Exception.__init__(error, words.strip())
        return error
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return PellucidError(f"the replicas do not start: {lines[-1] if lines else 'Ray says no more'}")
