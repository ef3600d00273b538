"""Decode through the whole engine: scheduler, pages, sampler, detokenizer and all."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from pellucid.bench.cases import PAGE_SIZE, SHORT_CONTEXT, tokens
from pellucid.bench.clock import ProgramClock
from pellucid.bench.spread import Spread
from pellucid.core.params import SamplingParams
from pellucid.costs import pages_for
from pellucid.engine.engine import Engine
from pellucid.engine.gathered import Gathered
from pellucid.engine.loading import Loaded, tokens_of
from pellucid.engine.request import Request
from pellucid.sampling import Sampler
from pellucid.sampling.rows import RowsSampler
from pellucid.scheduling import Limits


@dataclass(frozen=True, slots=True)
class WholeMeasured:
    """`n_steps` decode steps of `batch` greedy answers, in seconds for each repeat, and the part
    of them outside native code (none where the backend is not native)."""

    batch: int
    n_steps: int
    seconds: tuple[float, ...]
    python_seconds: tuple[float, ...] | None

    @property
    def tokens_per_second(self) -> Spread:
        return Spread.of(self.batch * self.n_steps / seconds for seconds in self.seconds)

    @property
    def step_seconds(self) -> Spread:
        return Spread.of(seconds / self.n_steps for seconds in self.seconds)

    @property
    def python_share(self) -> Spread | None:
        if self.python_seconds is None:
            return None
        pairs = zip(self.python_seconds, self.seconds, strict=True)
        return Spread.of(python / whole for python, whole in pairs)


def measure_whole(
    loaded: Loaded, batch: int, n_steps: int, repeats: int, clock: ProgramClock | None
) -> WholeMeasured:
    """`repeats` repeats after one that is not counted."""
    engine = _engine(loaded, batch, SHORT_CONTEXT + n_steps + 2)
    seconds: list[float] = []
    outside: list[float] = []
    with clock.counting_sampling() if clock else contextlib.nullcontext():
        for repeat in range(repeats + 1):
            whole, python = _decode(engine, batch, n_steps, clock)
            if repeat:
                seconds.append(whole)
                outside.append(python)
    return WholeMeasured(batch, n_steps, tuple(seconds), None if clock is None else tuple(outside))


def _engine(loaded: Loaded, batch: int, length: int) -> Engine:
    pages = batch * pages_for(length, PAGE_SIZE)
    prompts = max(512, batch * SHORT_CONTEXT)  # all in one step, so that all decode together
    limits = Limits(length, batch, prompts, pages, PAGE_SIZE, prefix_caching=True)
    sampler_of = RowsSampler if loaded.model.ops.name == "native" else Sampler  # as LLM does
    sampler = sampler_of(tokens_of(loaded.tokenizer, loaded.model.spec.vocab_size))
    return Engine(loaded.model, loaded.tokenizer, limits, sampler)


def _decode(
    engine: Engine, batch: int, n_steps: int, clock: ProgramClock | None
) -> tuple[float, float]:
    """Seconds of the decode steps, and those of them outside native code."""
    params = SamplingParams(temperature=0.0, max_tokens=n_steps + 1, ignore_eos=True)
    vocab = engine.model.spec.vocab_size
    for i in range(batch):
        prompt = tokens(i, 0, SHORT_CONTEXT, vocab)
        request = Request(str(i), prompt, params, i, n_steps + 1)
        engine.submit(request, Gathered(request))
    engine.step()  # the prompts, and the first token of each answer
    native = clock.seconds if clock else 0.0
    begin = time.perf_counter()
    engine.run_until(lambda: engine.scheduler.idle)
    whole = time.perf_counter() - begin
    native = clock.seconds - native if clock else 0.0
    return whole, whole - native
