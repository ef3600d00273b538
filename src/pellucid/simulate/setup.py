"""What is simulated: replicas of an engine with its limits, its cost model and what it adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pellucid.core.errors import BadInput
from pellucid.scheduling import Limits
from pellucid.simulate.pace import Pace
from pellucid.simulate.times import StepTime

Routing = Literal["prefix", "least-loaded", "round-robin"]
ROUTINGS: tuple[Routing, ...] = ("prefix", "least-loaded", "round-robin")
MOST_REPLICAS = 1024


@dataclass(frozen=True, slots=True)
class Guessing:
    """Speculation: each sequence in decode gets `tokens` guesses where the step has room, each
    accepted with the chance `acceptance` if those before it were. `size`: of the model that
    guesses, over the size of this one; 0 for guesses from the text itself."""

    tokens: int
    acceptance: float
    size: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= 64:
            raise BadInput(f"{self.tokens} guesses at once: it must be from 1 to 64")
        if not 0 <= self.acceptance <= 1:
            raise BadInput(f"an acceptance of {self.acceptance:g}: a chance is from 0 to 1")
        if not 0 <= self.size <= 1:
            raise BadInput(f"a draft of {self.size:g} times the model's size: from 0 to 1")


@dataclass(frozen=True, slots=True)
class Path:
    """Seconds between a client and a step: `before` a request is queued (connection, parsing,
    tokens), and for each token of its prompt; `after` a step until its token is at the client."""

    before: float = 0.0
    before_each: float = 0.0
    after: float = 0.0


@dataclass(frozen=True)
class Setup:
    """`replicas` engines that are alike, behind a router. `pace` is that of real steps over
    the cost model's."""

    limits: Limits
    times: StepTime
    replicas: int = 1
    routing: Routing = "prefix"
    guessing: Guessing | None = None
    path: Path = field(default_factory=Path)
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MOST_REPLICAS:
            raise BadInput(f"{self.replicas} replicas: there must be from 1 to {MOST_REPLICAS}")
        if self.routing not in ROUTINGS:
            raise BadInput(f"routing {self.routing!r} is none of {', '.join(ROUTINGS)}")

    @property
    def slack(self) -> int:
        """How many requests more than the least loaded one a replica may have that holds a
        prompt's prefix."""
        return max(2, self.limits.max_num_seqs // 4)
