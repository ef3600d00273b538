"""What it costs to have a model in stages: one process beside two, in turn, with as many threads.

    python bench/stages.py [MODEL] [--threads 2] [--stages 2] [--pairs 8] [--json FILE]

The one process computes with all threads; each stage with its share of them, in a process of its
own on this machine, so that no network is between them and what is seen is the way through Ray.
Prefill is the time to the first token of a prompt of 512 tokens that no cache holds; decode what a
token takes after the first, of one answer alone. A pair is one of each, in this order and then in
the other; tokens are compared, so that both do the same work. `bench/stages_table.py` writes the
results of bench/results/stages into the docs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from plan_machine import Others

from pellucid import LLM, SamplingParams
from pellucid.distributed.pipeline.llm import PipelineLLM
from pellucid.engine.machine import processor_name
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve

PROMPT, TOKENS = 512, 64
PARAMS = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
WHAT = {"decode": "ms a token", "prefill": f"ms for {PROMPT} tokens"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.threads % given.stages:
        parser.error("each stage has as many threads: --threads must be a multiple of --stages")
    model = resolve(given.model, progress=TerminalProgress())
    result = measure(model, given)
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(model: Path, given: argparse.Namespace) -> dict[str, Any]:
    memory: dict[str, Any] = {"kv_cache_memory_bytes": 64 << 20, "seed": 0, "max_num_seqs": 1}
    one = LLM(model, threads=given.threads, **memory)
    each = given.threads // given.stages
    others = Others()
    with one, PipelineLLM.connect(model, stages=given.stages, threads=each, **memory) as staged:
        engines = {"one": one, "staged": staged}
        for llm in engines.values():
            _asked(llm, 0)
        others.cores()
        found = [_pair(engines, number) for number in range(1, given.pairs + 1)]
        taken = others.cores()
    return {
        "model": model.stem,
        "processor": processor_name(),
        "date": time.strftime("%Y-%m-%d"),
        "threads": given.threads,
        "stages": given.stages,
        "pairs": given.pairs,
        "cores_that_others_took": round(taken, 2),
        **{what: _summary(found, what) for what in WHAT},
    }


def _pair(engines: dict[str, LLM], number: int) -> dict[str, dict[str, float]]:
    order = sorted(engines, reverse=bool(number % 2))
    found = {name: _asked(engines[name], number) for name in order}
    assert found["one"][1] == found["staged"][1], "stages answer otherwise"
    return {name: times for name, (times, _) in found.items()}


def _asked(llm: LLM, number: int) -> tuple[dict[str, float], list[int]]:
    """The times of one answer, in ms, and its tokens."""
    drawn = random.Random(number)
    prompt = [drawn.randrange(100, llm.spec.vocab_size) for _ in range(PROMPT)]
    [output] = llm.generate({"prompt_token_ids": prompt}, PARAMS)
    metrics = output.metrics
    assert metrics is not None
    assert not metrics.cached_tokens
    prefill = metrics.time_to_first_token - metrics.queue_time
    decode = metrics.finished_time - metrics.time_to_first_token
    times = {"prefill": 1000 * prefill, "decode": 1000 * decode / (TOKENS - 1)}
    return times, output.outputs[0].token_ids


def _summary(pairs: list[dict[str, dict[str, float]]], what: str) -> dict[str, Any]:
    ratios = [pair["staged"][what] / pair["one"][what] for pair in pairs]
    return {
        "unit": WHAT[what],
        **{
            name: round(statistics.median(pair[name][what] for pair in pairs), 2)
            for name in ("one", "staged")
        },
        "ratio": [round(f(ratios), 3) for f in (min, statistics.median, max)],
    }


if __name__ == "__main__":
    main()
