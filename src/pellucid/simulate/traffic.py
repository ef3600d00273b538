"""Traffic: which requests come when, made from a few numbers or read from a log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from pellucid.core.errors import BadInput
from pellucid.simulate.draws import draws
from pellucid.simulate.lengths import Lengths

_ARRIVALS, _PROMPTS, _OUTPUTS, _TEXTS = range(4)  # streams of draws
MOST_REQUESTS = 1_000_000


class Job(NamedTuple):
    """A request: seconds when it comes, tokens of its prompt and of its answer. The first `shared`
    tokens of the prompt are those of the common text number `text`."""

    at: float
    prompt: int
    output: int
    shared: int = 0
    text: int = 0


class Traffic(Protocol):
    """Requests, as many as are asked for. The same seed gives the same ones."""

    @property
    def rate(self) -> float:
        """Requests a second, on average."""
        ...

    @property
    def mean_prompt(self) -> float: ...

    @property
    def mean_output(self) -> float: ...

    def jobs(self, count: int, seed: int) -> list[Job]:
        """In the order in which they come."""
        ...

    def at_rate(self, rate: float) -> Traffic:
        """The same requests, closer together or further apart."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """Traffic from numbers. `burstiness` is the coefficient of variation of the time between two
    arrivals, which is gamma distributed: 1 is Poisson, 0 a clock, above 1 comes in bursts.
    `shared`: this share of each prompt's tokens comes first and is the same for all who have the
    same of `texts` common texts.

    Raises `BadInput` for what no traffic can be.
    """

    rate: float
    prompt: Lengths
    output: Lengths
    burstiness: float = 1.0
    shared: float = 0.0
    texts: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1e6:
            raise BadInput(f"a rate of {self.rate:g} requests a second: it must be above 0, to 1e6")
        if not 0 <= self.burstiness <= 20:
            raise BadInput(f"a burstiness of {self.burstiness:g}: it must be from 0 to 20")
        if not 0 <= self.shared <= 1:
            raise BadInput(f"a shared prefix of {self.shared:g}: a share is from 0 to 1")
        if not 1 <= self.texts <= 100_000:
            raise BadInput(f"{self.texts} common texts: there must be from 1 to 100000")

    @property
    def mean_prompt(self) -> float:
        return self.prompt.mean

    @property
    def mean_output(self) -> float:
        return self.output.mean

    def jobs(self, count: int, seed: int) -> list[Job]:
        arrivals, prompts = draws(seed, _ARRIVALS), draws(seed, _PROMPTS)
        outputs, texts = draws(seed, _OUTPUTS), draws(seed, _TEXTS)
        # Below a hundredth nobody tells it from a clock, and gamma's shape goes beyond numbers.
        shape = 1 / self.burstiness**2 if self.burstiness > 0.01 else 0.0
        at, made = 0.0, []
        for i in range(count):
            # The same draws at every rate: loads differ in nothing but their pace.
            gap = arrivals.at(i).gammavariate(shape, 1 / shape) if shape else 1.0
            at += gap / self.rate
            prompt = self.prompt.draw(prompts.at(i))
            text = int(texts.at(i).random() * self.texts)
            made.append(
                Job(at, prompt, self.output.draw(outputs.at(i)), int(self.shared * prompt), text)
            )
        return made

    def at_rate(self, rate: float) -> Made:
        return replace(self, rate=rate)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Traffic as it was: `log` in the order of arrival, from second 0 on. Asked for more than there
    is, it begins again; another seed begins elsewhere. `pace`: how many times as fast."""

    log: tuple[Job, ...]
    pace: float = 1.0

    def __post_init__(self) -> None:
        if len(self.log) < 2 or self.log[-1].at <= 0:
            raise BadInput("the log has no traffic: it needs two requests that come at two times")

    @property
    def rate(self) -> float:
        return self.pace * (len(self.log) - 1) / self.log[-1].at

    @property
    def mean_prompt(self) -> float:
        return sum(job.prompt for job in self.log) / len(self.log)

    @property
    def mean_output(self) -> float:
        return sum(job.output for job in self.log) / len(self.log)

    def jobs(self, count: int, seed: int) -> list[Job]:
        n = len(self.log)
        first = draws(seed, _ARRIVALS).randrange(n) if seed else 0
        round_trip = self.log[-1].at * n / (n - 1)  # a gap of mean length before it begins again
        began, made = self.log[first].at, []
        for i in range(first, first + count):
            job = self.log[i % n]
            made.append(job._replace(at=(job.at + round_trip * (i // n) - began) / self.pace))
        return made

    def at_rate(self, rate: float) -> Recorded:
        return replace(self, pace=self.pace * rate / self.rate)
