"""A short measured sweep of a real server: prompts, batches, contexts, and mixed traffic."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice, pairwise
from time import monotonic
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
    """Requests that `users` ask at once, each the next when it has its answer: those of `asks` once
    or, with `seconds`, from the first of them anew until so long is over (each user at least one).
    `mixed`: it is like real traffic."""

    name: str
    asks: tuple[Ask, ...]
    users: int
    mixed: bool = False
    seconds: float = 0.0


class Step(NamedTuple):
    """A step that was measured: what it computed, and its seconds from the end of the one before,
    or from when there was something to do, to what came of it being handed over."""

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
_ASKS: Final = 64  # of traffic; who is through them begins anew
_SEED: Final = 20_26
_LOOKS, _LOOK_EACH_S = 200, 0.05
# Traffic is measured twice, some seconds apart: a machine is not the same all the time.
_ROUNDS, _TRAFFIC_S = 2, 2.0
_APART_S: Final = 0.02


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
    return [*found, *(phase for i in range(_ROUNDS) for phase in traffic(places, context, i + 1))]


def traffic(places: int, context: int, number: int) -> list[Phase]:
    """Like traffic, of one user up to more than there are places. Those of another `number` ask
    something else."""
    crowds = sorted({1, max(1, places // 5), max(1, places // 2), places, places + 4})
    return [
        Phase(f"{users} users, {number}", _asks(context, number, users), users, True, _TRAFFIC_S)
        for users in crowds
    ]


def _asks(context: int, number: int, users: int) -> tuple[Ask, ...]:
    prompt, output = Lognormal(min(128, context / 8), 0.8), Uniform(16, 48)
    stream = users + (number << 20)
    prompts, outputs = draws(_SEED, 2 * stream), draws(_SEED, 2 * stream + 1)
    return tuple(
        Ask(
            min(prompt.draw(prompts.at(i)), context // 2),
            min(output.draw(outputs.at(i)), context // 2),
        )
        for i in range(_ASKS)
    )


async def observe(
    port: int,
    vocab: int,
    plan: Sequence[Phase],
    told: Callable[[int, int], None],
    seed: int = _SEED,
) -> Observed:
    """Runs the phases on the server at `port`. `told` is called with those done and those that
    there are. Prompts are drawn by `seed`: those that were asked before would be cached. Raises
    `PellucidError` if it does not answer."""
    prompts = Prompts(vocab, seed)
    found = Observed(mixed=frozenset(phase.name for phase in plan if phase.mixed))
    await _phase(port, prompts, Phase("warm", (Ask(_SHORT, 8),) * 4, 2))
    seen = (await _settled(port, -1))["steps"][-1]["id"]
    for number, phase in enumerate(plan):
        told(number, len(plan))
        heard = await _phase(port, prompts, phase)
        records = await _settled(port, seen)
        new = [step for step in records["steps"] if step["id"] > seen]
        seen = new[-1]["id"]
        found.steps += steps_of(new, phase.name)
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
    # Bodies are made before the clock runs: a user of its own machine would make them elsewhere.
    asks = cycle(phase.asks) if phase.seconds else phase.asks
    asked = islice(asks, max(len(phase.asks), 2 * phase.users))
    bodies = iter([body_of(prompts.of(one.prompt), one.output) for one in asked])
    heard: list[Heard] = []
    until = monotonic() + phase.seconds if phase.seconds else math.inf

    async def user() -> None:
        for body in bodies:
            heard.append(await ask(port, body))
            if monotonic() >= until:
                return

    await asyncio.gather(*(user() for _ in range(phase.users)))
    return heard


def steps_of(records: Sequence[dict[str, Any]], phase: str) -> list[Step]:
    """The steps of records that follow one another, but for the first of them. Where nobody ran or
    waited after the step before, a step waited for its request: that is not its time."""
    found = []
    for before, step in pairwise(records):
        ms, queue = step["ms"], before["queue"]
        if ms["wall"] is None:
            continue
        idle = not queue["running"] and not queue["waiting"]
        seconds = (ms["wall"] - (ms["wait"] if idle else 0)) / 1000
        found.append(Step(tuple(map(_span, step["batch"])), seconds, phase))
    return found


def _span(span: dict[str, Any]) -> SpanRecord:
    n_tokens = span["tokens"]
    return SpanRecord(span["sequence"], span["context"] - n_tokens, n_tokens, span["logits"])


def _delays(found: Observed, heard: list[Heard], records: list[dict[str, Any]]) -> None:
    """Of the requests that are still in the records. The server's name of one is its kind and what
    the engine calls it, but for the number of the answer."""
    known = {record["id"].partition(".")[0]: record for record in records}
    # Those that come together wait for one another, as traffic seldom does.
    for one in apart(heard):
        record = known.get(one.id.rpartition("-")[2])
        if record is not None and record["first_token"] is not None:
            found.before.append(record["queued"] - one.asked)
            found.after.append(one.times[0] - record["first_token"])


def apart(heard: Iterable[Heard]) -> list[Heard]:
    """Those that nobody else asked with, in the order in which they asked."""
    ordered = sorted(heard, key=lambda one: one.asked)
    asked = [-math.inf, *(one.asked for one in ordered), math.inf]
    return [
        one
        for before, one, after in zip(asked, ordered, asked[2:], strict=False)
        if one.asked - before >= _APART_S and after - one.asked >= _APART_S
    ]


def median(values: Sequence[float]) -> float:
    """0 of none."""
    return max(0.0, statistics.median(values)) if values else 0.0
