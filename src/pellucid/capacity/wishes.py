"""What is asked of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from pellucid.capacity.machine import Efficiency
from pellucid.core.errors import BadInput
from pellucid.engine.sizing import Asked
from pellucid.simulate.goals import Goal
from pellucid.simulate.setup import MOST_REPLICAS, Guessing, Routing
from pellucid.simulate.traffic import Traffic

MOST_SEEDS = 30
_MOST_RATES = 50


@dataclass(frozen=True)
class Wishes:
    """hardware: a name of the table, or None for this machine. rates: of the curve, requests a
    second of all replicas together; empty: shares of what they can do. rate: the load that is
    looked at closely; None: seven tenths of that. replicas: None finds how many the goals need.
    asked: limits of an engine. requests: of a run, of which there are `seeds`.

    Raises `BadInput` for a number that is out of range.
    """

    traffic: Traffic
    hardware: str | None = None
    rate: float | None = None
    rates: tuple[float, ...] = ()
    goals: tuple[Goal, ...] = ()
    replicas: int | None = None
    per_hour: float | None = None
    asked: Asked = field(default_factory=Asked)
    kv_dtype: str = "f16"
    quantization: str | None = None
    guessing: Guessing | None = None
    routing: Routing = "prefix"
    threads: int | None = None
    efficiency: Efficiency = field(default_factory=Efficiency)
    seed: int = 0
    seeds: int = 5
    requests: int = 200
    what_ifs: bool = True

    def __post_init__(self) -> None:
        for rate in (*self.rates, *(() if self.rate is None else (self.rate,))):
            if not 0 < rate <= 1e6:
                raise BadInput(f"a rate of {rate:g} requests a second: it must be above 0, to 1e6")
        if len(self.rates) > _MOST_RATES:
            raise BadInput(f"{len(self.rates)} rates: {_MOST_RATES} are the most at once")
        if self.replicas is not None and not 1 <= self.replicas <= MOST_REPLICAS:
            raise BadInput(f"{self.replicas} replicas: there must be from 1 to {MOST_REPLICAS}")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise BadInput(f"{self.seeds} seeds: there must be from 1 to {MOST_SEEDS}")
        if not 20 <= self.requests <= 100_000:
            raise BadInput(f"{self.requests} requests a run: there must be from 20 to 100000")
        if self.threads is not None and not 1 <= self.threads <= 1024:
            raise BadInput(f"{self.threads} threads: there must be from 1 to 1024")
        self.asked.check()
