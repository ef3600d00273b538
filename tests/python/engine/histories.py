"""Random histories of an engine, and the check that no answer shows any of it.

Requests arrive at any step, share prefixes, are cancelled, and meet pools so small that they
preempt each other. Each is held to what it gives alone, in the naive loop: no cache, every step
from position 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from pellucid.core.structured import StructuredOutputs
from pellucid.costs import kv_bytes_per_token, pages_for
from pellucid.engine.gathered import Gathered
from pellucid.engine.generation import Generation
from tests.python.engine.recorder import Recorder, Rows
from tests.python.engine.tiny import N_TOKENS
from tests.python.engine.traffic import MakeLLM

LENGTH = 64  # of the context
# Most tokens are refused by the first, few by the second; the last ends in the midst of others.
FORMS = [
    None,
    None,
    None,
    StructuredOutputs(json={"type": "object"}),
    StructuredOutputs(regex="(?s:[^e]*)"),
    StructuredOutputs(regex="([a-m] ){0,3}z"),
]


@dataclass(frozen=True)
class Event:
    """A request, the step it comes before, and how many steps later it is cancelled, if ever."""

    prompt: tuple[int, ...]
    params: SamplingParams
    step: int
    cancelled_after: int | None = None
    priority: int = 0
    salt: str | None = None


@dataclass(frozen=True)
class History:
    events: tuple[Event, ...]
    page_size: int
    max_num_seqs: int
    spare_tokens: int
    spare_pages: int
    prefix_caching: bool
    policy: str


@st.composite
def histories(draw: st.DrawFn, page_sizes: tuple[int, ...], forms: bool = True) -> History:
    """`forms`: some answers have one, or end where they like."""
    tokens = st.integers(0, N_TOKENS - 1)
    roots = draw(st.lists(st.lists(tokens, min_size=40, max_size=40), min_size=1, max_size=2))
    n_events = draw(st.integers(1, 8))
    events = []
    for seed in range(n_events):
        shared = draw(st.sampled_from(roots))[: draw(st.integers(0, 40))]
        own = draw(st.lists(tokens, min_size=0 if shared else 1, max_size=8))
        params = SamplingParams(
            n=draw(st.sampled_from([1, 1, 1, 2, 3])),
            temperature=draw(st.sampled_from([0.0, 1.2])),
            repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
            logprobs=draw(st.sampled_from([None, 2])),
            max_tokens=draw(st.integers(1, 16)),
            min_p=draw(st.sampled_from([0.0, 0.0, 0.05])),
            structured_outputs=draw(st.sampled_from(FORMS)) if forms else None,
            ignore_eos=not forms or draw(st.sampled_from([True, True, False])),
            seed=seed,
        )
        cancelled = draw(st.one_of(st.none(), st.none(), st.integers(0, 12)))
        step, priority = draw(st.integers(0, 15)), draw(st.integers(-1, 1))
        salt = draw(st.sampled_from([None, None, "tenant"]))
        events.append(Event((*shared, *own), params, step, cancelled, priority, salt))
    return History(
        tuple(events),
        draw(st.sampled_from(page_sizes)),
        draw(st.integers(1, 6)),
        draw(st.integers(0, 40)),
        draw(st.integers(0, 3)),
        draw(st.booleans() if n_events % 4 == 0 else st.just(True)),
        draw(st.sampled_from(["continuous", "continuous", "continuous", "static"])),
    )


def check(
    make_llm: MakeLLM, naive: LLM, history: History, *, caches: int = 1, **arguments: Any
) -> LLM:
    """Play the history, and hold every answer and every row of scores to those of the naive loop;
    returns the engine that played it. `caches` of the model's size share its pages."""
    engine_of = naive.engine.model.ops
    page_bytes = history.page_size * kv_bytes_per_token(
        naive.spec, engine_of.kv_dtype, engine_of.kv_lanes
    )
    llm = make_llm(
        max_model_len=LENGTH,
        page_size=history.page_size,
        max_num_seqs=history.max_num_seqs,
        max_num_batched_tokens=history.max_num_seqs + history.spare_tokens,
        kv_cache_memory_bytes=caches
        * page_bytes
        * (pages_for(LENGTH, history.page_size) + history.spare_pages),
        enable_prefix_caching=history.prefix_caching,
        policy=history.policy,
        **arguments,
    )
    # Grammars are the vocabulary's: one process to try them in is enough.
    llm.front.__dict__["_grammars"] = naive.front._grammars
    gathered, rows = play(llm, history)
    for event, result in zip(history.events, gathered, strict=True):
        alone, expected = play(naive, History((_plain(event),), 0, 0, 0, 0, False, ""))
        for ours, theirs in zip(result.output().outputs, alone[0].output().outputs, strict=True):
            if ours.finish_reason == "abort":
                n = len(ours.token_ids)
                assert ours.token_ids == theirs.token_ids[:n]
                assert event.cancelled_after is not None
            else:
                assert ours == theirs
        for key in rows.keys() & expected.keys():
            assert rows[key] == expected[key], f"scores differ at (seed, position) {key}"
    scheduler = llm.engine.scheduler
    scheduler.check()
    assert scheduler.idle
    assert scheduler.page_counts().owned == 0
    return llm


def play(llm: LLM, history: History) -> tuple[list[Gathered], Rows]:
    engine = llm.engine
    stepper = engine._stepper
    recorder = stepper.sampler = Recorder(stepper.sampler)
    results: list[Gathered] = []
    running: list[Generation] = []
    try:
        waiting = sorted(enumerate(history.events), key=lambda pair: pair[1].step)
        found: dict[int, Gathered] = {}
        aborts: dict[int, list[Generation]] = {}
        step = 0
        while waiting or not engine.idle:
            for generation in aborts.pop(step, ()):
                engine.abort(generation)
            while waiting and waiting[0][1].step <= step:
                index, event = waiting.pop(0)
                request = llm.front.request(
                    llm.front.inputs.prompt(list(event.prompt), parse_special=False),
                    event.params,
                    priority=event.priority,
                    cache_salt=event.salt,
                )
                found[index] = Gathered(request)
                generation = engine.submit(request, found[index])
                running.append(generation)
                if event.cancelled_after is not None:
                    aborts.setdefault(step + 1 + event.cancelled_after, []).append(generation)
            engine.step()
            engine.scheduler.check()
            step += 1
        results = [found[index] for index in range(len(history.events))]
    finally:
        for generation in running:
            engine.abort(generation)
        stepper.sampler = recorder.inner
    assert all(result.error is None for result in results)
    return results, recorder.rows


def _plain(event: Event) -> Event:
    return replace(event, step=0, cancelled_after=None, priority=0, salt=None)


def crowded(page_size: int) -> History:
    """A history in which prefixes are shared, answers fork, and pages run out."""
    root = tuple((7 * i + 3) % 250 for i in range(20))
    events = []
    for i in range(8):
        prompt = (*root[: 20 - 3 * (i % 3)], i)
        params = SamplingParams(
            n=1 + i % 2, temperature=1.2 * (i % 3), max_tokens=40, ignore_eos=True, seed=i
        )
        events.append(Event(prompt, params, step=i // 2, cancelled_after=9 if i == 3 else None))
    return History(tuple(events), page_size, 5, 30, 1, True, "continuous")
