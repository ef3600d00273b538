"""A short measured sweep of a real server: prompts, batches, contexts, and mixed traffic."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pellucid.capacity.client import Heard, Prompts, ask, body_of, get_json
from pellucid.core.errors import PellucidError
from pellucid.core.record import SpanRecord
from pellucid.simulate.draws import draws
from pellucid.simulate.lengths import Lognormal, Uniform


class Ask(NamedTuple):
    """Tokens of a prompt and of its answer."""

    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Requests that `users` ask at once, each the next when it has its answer. `mixed`: it is like
    real traffic, and what is not a step is measured on it too."""

    name: str
    asks: tuple[Ask, ...]
    users: int
    mixed: bool = False


class Step(NamedTuple):
    """A step that was measured: what it computed, and its seconds from the end of the one before
    to what came of it being handed over."""

    spans: tuple[SpanRecord, ...]
    seconds: float
    phase: str


@dataclass
class Observed:
    """What a sweep saw. before: seconds from a client's request to the engine's queue, after: from
    a token in the engine to the client."""

    steps: list[Step] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    mixed: frozenset[str] = frozenset()


_BATCHES: Final = (2, 4, 8, 16, 32)
_SHORT: Final = 24
_SEED: Final = 20_26
_LOOKS, _LOOK_EACH_S = 200, 0.05


def phases(places: int, context: int) -> list[Phase]:
    """What is measured on an engine with so many places and such a context."""
    long = min(1000, context // 2)
    found = [
        Phase("alone", (Ask(_SHORT, 16),) * 3, 1),
        Phase("one long prompt", (Ask(long, 16),), 1),
        Phase("three long prompts", (Ask(max(long // 2, 2), 16),) * 3, 3),
    ]
    for batch in _BATCHES:
        if batch <= places:
            found.append(Phase(f"{batch} together", (Ask(_SHORT, 14),) * batch, batch))
    crowd = _like_traffic(places * 3 // 2 + 4, context, 2)
    found += [
        Phase("a few users", _like_traffic(16, context, 1), max(1, min(6, places)), True),
        Phase(
            "more users than places",
            crowd,
            places + 4,
            True,
        ),
    ]
    return found


def _like_traffic(count: int, context: int, seed: int) -> tuple[Ask, ...]:
    prompt, output = Lognormal(min(128, context / 8), 0.8), Uniform(16, 48)
    prompts, outputs = draws(_SEED, 2 * seed), draws(_SEED, 2 * seed + 1)
    return tuple(
        Ask(min(prompt.draw(prompts.at(i)), context // 2), output.draw(outputs.at(i)))
        for i in range(count)
    )


async def observe(
    port: int, vocab: int, plan: Sequence[Phase], told: Callable[[int, int], None]
) -> Observed:
    """Runs the phases on the server at `port`. `told` is called with those done and those that
    there are. Raises `PellucidError` if it does not answer."""
    prompts = Prompts(vocab, _SEED)
    found = Observed(mixed=frozenset(phase.name for phase in plan if phase.mixed))
    await _phase(port, prompts, Phase("warm", (Ask(_SHORT, 8),) * 4, 2))
    seen = (await _settled(port, -1))["steps"][-1]["id"]
    for number, phase in enumerate(plan):
        told(number, len(plan))
        heard = await _phase(port, prompts, phase)
        records = await _settled(port, seen)
        new = [step for step in records["steps"] if step["id"] > seen]
        seen = new[-1]["id"]
        # The first step of a phase waited for its first request.
        found.steps += [one for step in new[1:] if (one := _step(step, phase.name)) is not None]
        if phase.mixed:
            _delays(found, heard, records["requests"])
    told(len(plan), len(plan))
    return found


async def _settled(port: int, seen: int) -> dict[str, Any]:
    """The records once they tell of steps after `seen`, and nothing more comes: they are looked at
    some times a second. Raises `PellucidError` if they never do."""
    last, why = -1, "they tell of no steps"
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_EACH_S)
        try:
            records: dict[str, Any] = await get_json(port, "/live/records")
        except PellucidError as error:  # an engine that is busy may be late
            why = str(error)
            continue
        newest = records["steps"][-1]["id"] if records["steps"] else -1
        if newest > seen and newest == last:
            return records
        last = newest
    raise PellucidError(f"the server's records are of no use to a calibration: {why}")


async def _phase(port: int, prompts: Prompts, phase: Phase) -> list[Heard]:
    bodies = iter([body_of(prompts.of(one.prompt), one.output) for one in phase.asks])
    heard: list[Heard] = []

    async def user() -> None:
        for body in bodies:
            heard.append(await ask(port, body))

    await asyncio.gather(*(user() for _ in range(phase.users)))
    return heard


def _step(step: dict[str, Any], phase: str) -> Step | None:
    wall = step["ms"]["wall"]
    if wall is None:
        return None
    spans = tuple(
        SpanRecord(
            span["sequence"], span["context"] - span["tokens"], span["tokens"], span["logits"]
        )
        for span in step["batch"]
    )
    return Step(spans, wall / 1000, phase)


def _delays(found: Observed, heard: list[Heard], records: list[dict[str, Any]]) -> None:
    """Requests by when they came are the same in both; a median forgives two that changed
    places."""
    last = sorted((r for r in records if r["finished"] is not None), key=lambda r: r["queued"])
    last = last[-len(heard) :]
    if len(last) < len(heard):
        return
    asked = sorted(one.asked for one in heard)
    found.before += [r["queued"] - at for r, at in zip(last, asked, strict=True)]
    first = sorted(one.times[0] for one in heard)
    engine = sorted(r["first_token"] for r in last)
    found.after += [at - known for at, known in zip(first, engine, strict=True)]


def median(values: Sequence[float]) -> float:
    """0 of none."""
    return max(0.0, statistics.median(values)) if values else 0.0
