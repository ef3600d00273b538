"""The capacity figure's forecast: the engine that serves, simulated in a process of its own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any, Final

from starlette.requests import Request

from pellucid.capacity.kept import Kept, find, key_of
from pellucid.capacity.machine import Efficiency
from pellucid.core.errors import PellucidError
from pellucid.costs import WeightSize
from pellucid.costs.roofline import Limits, Priced
from pellucid.engine.machine import processor_name
from pellucid.engine.records import EngineAbout
from pellucid.server.errors import ApiError, bad_request
from pellucid.simulate.figure import figure
from pellucid.simulate.lengths import Lognormal
from pellucid.simulate.setup import Setup
from pellucid.simulate.times import Roofline
from pellucid.simulate.traffic import Made
from pellucid.simulate.workers import Worker

_SECONDS: Final = 60.0  # that a forecast may take: it goes last on a machine that is busy
_AGAIN_S: Final = 20  # after which one that took too long may be asked for again
_NICE: Final = 19  # the engine goes first
_KEPT: Final = 32  # forecasts
_VARIATION: Final = 0.7  # of lengths about their mean
MOST_REPLICAS: Final = 16


@dataclass(frozen=True, slots=True)
class Mix:
    """What the sliders say: mean tokens of prompts and answers, the share of a prompt that all
    have in common, and how many replicas there are."""

    prompt: int
    output: int
    shared: float
    replicas: int


def read_mix(request: Request, about: EngineAbout) -> Mix:
    """From the query. Raises `ApiError` naming what is out of range."""
    most = about.limits.max_model_len
    return Mix(
        int(_number(request, "prompt", 256, 1, max(1, most // 2))),
        int(_number(request, "output", 64, 1, max(1, most // 2))),
        _number(request, "shared", 0, 0, 1),
        int(_number(request, "replicas", 1, 1, MOST_REPLICAS)),
    )


def _number(request: Request, name: str, default: float, low: float, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return min(default, high)
    try:
        value = float(text[:40])
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise bad_request(f"{name} must be from {low:g} to {high:g}, not {text[:100]!r}", name)
    return value


class Forecasts:
    """One at a time, off the event loop, in a process that is ended when it takes too long; the
    last ones are kept."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._worker: Worker | None = None
        self._known: OrderedDict[tuple[int, Mix], dict[str, Any]] = OrderedDict()

    async def of(self, about: EngineAbout, mix: Mix) -> dict[str, Any]:
        """The forecast; `missing` in it says why there is none. Raises `ApiError` where it takes
        too long."""
        key = about.epoch, mix
        async with self._one:
            if key not in self._known:
                self._known[key] = await self._made(about, mix)
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return self._known[key]

    def close(self) -> None:
        """Ends the process, whatever it does."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    async def _made(self, about: EngineAbout, mix: Mix) -> dict[str, Any]:
        setup, known = await asyncio.to_thread(_setup, about)
        if setup is None:
            return {"mark": "simulated", **known, "mix": asdict(mix)}
        traffic = Made(
            1.0,
            Lognormal(mix.prompt, _VARIATION),
            Lognormal(mix.output, _VARIATION),
            shared=mix.shared,
        )
        if self._worker is None:
            self._worker = await asyncio.to_thread(Worker, _NICE)
        call = asyncio.to_thread(self._worker.call, figure, setup, traffic, mix.replicas)
        try:
            async with asyncio.timeout(_SECONDS):
                found = await asyncio.shield(_quiet(call))
        except (TimeoutError, asyncio.CancelledError):
            self.close()
            raise ApiError(
                503,
                f"the simulation took longer than {_SECONDS:g} s: ask for shorter answers",
                retry_after=_AGAIN_S,
            ) from None
        if isinstance(found, PellucidError):
            self.close()
            raise ApiError(503, str(found))
        return {"mark": "simulated", **known, "mix": asdict(mix), **found}


async def _quiet(call: Any) -> Any:
    """A failure as a value: nobody may be there to hear of it any more."""
    try:
        return await call
    except PellucidError as error:
        return error


def _setup(about: EngineAbout) -> tuple[Setup | None, dict[str, Any]]:
    """The engine as it serves, and what is known of its step times; None where that is nothing."""
    sizes = {one.name: WeightSize(one.shape, one.nbytes) for one in about.tensors}
    priced = Priced(about.spec, sizes, about.kv_dtype, about.kv_lanes)
    kept = _calibration(about, priced)
    if kept is not None:
        found = kept.calibration
        setup = Setup(
            about.limits,
            found.times(about.spec),
            path=found.path,
            pace=found.pace,
        )
        return setup, {"step_times": "calibrated", "error": asdict(found.error)}
    machine = about.machine
    if machine is None:
        return None, {"missing": "step times are not known: this backend measures no peaks"}
    few = priced.matrix_bits <= 9
    operations = machine.int8_operations_per_second if few else machine.f32_operations_per_second
    limits = Limits("", machine.read_bytes_per_second, operations, "", "measured")
    assumed = Efficiency()
    times = Roofline(priced, limits, assumed.bandwidth, assumed.arithmetic, assumed.fixed)
    return Setup(about.limits, times), {"step_times": "peaks measured here", "error": None}


def _calibration(about: EngineAbout, priced: Priced) -> Kept | None:
    key = key_of(processor_name(), about.threads, about.spec, priced.weight_bytes, about.kv_dtype)
    return find(key)
