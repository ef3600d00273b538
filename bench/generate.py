"""`LLM.generate` on many prompts: beside the backend's own rate, and continuous beside static.

    python bench/generate.py [MODEL] [--prompts 500] [--rounds 2] [--json FILE] [--picture FILE]

1. rate: the prompts through `LLM.generate`, and after each step its plan once more through the
   model's forward pass alone, on a second cache. The ratio of the two times is what scheduler,
   sampler, text and all of Python leave of the backend's rate.
2. policies: the same requests, of mixed output lengths, under both policies.
3. prefix: the time to the first token of a prompt whose first 1,000 tokens were computed before,
   over that of the first.

Rounds take each in turn. The machine may have other work: the ratios are what counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from generate_picture import picture

from pellucid import SamplingParams
from pellucid.core.plan import Plan
from pellucid.core.record import StepRecord
from pellucid.engine.llm import LLM
from pellucid.hub import DEFAULT_MODEL

LENGTHS = (24, 48, 96, 160, 320)  # of prompts, in turn
ANSWERS = (8, 24, 32, 64, 160)  # tokens of answers, in turn, at another pace
PREFIX = 1000


def main() -> None:
    given = _arguments()
    report: dict[str, Any] = {"model": str(given.model), "prompts": given.prompts}
    if "rate" in given.parts:
        report["rate"] = [_rate(given, round_) for round_ in range(given.rounds)]
        _say_rate(report["rate"])
    if "policies" in given.parts:
        report["policies"] = _policies(given)
        if given.picture:
            given.picture.write_text(picture(report["policies"]))
    if "prefix" in given.parts:
        report["prefix"] = _prefix(given)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n")


def _requests(
    given: argparse.Namespace, vocab: int
) -> tuple[list[list[int]], list[SamplingParams]]:
    """Prompts that share nothing, and answers of every length beside each."""
    prompts, params = [], []
    for i in range(given.prompts):
        length = LENGTHS[i % len(LENGTHS)]
        prompts.append([(104729 * i + 7919 * (k + 1)) % vocab for k in range(length)])
        n = ANSWERS[(i // len(LENGTHS) + i) % len(ANSWERS)]
        params.append(SamplingParams(temperature=0, max_tokens=n, ignore_eos=True))
    return prompts, params


def _open(given: argparse.Namespace, **arguments: Any) -> LLM:
    return LLM(
        given.model,
        threads=given.threads,
        max_model_len=2048,
        max_num_seqs=given.seqs,
        kv_cache_memory_bytes=1 << 30,
        seed=0,
        **arguments,
    )


def _rate(given: argparse.Namespace, round_: int) -> dict[str, float]:
    """Each step's plan is run a second time, bare and on a cache of its own, right after the step:
    whatever else the machine does slows both alike."""
    llm = _open(given, enable_prefix_caching=False)  # its copies of pages are of one cache only
    engine = llm.engine
    limits, model = engine.scheduler.limits, engine.model
    cache = model.ops.new_cache(model.spec, limits.n_pages, limits.page_size)
    stepper = engine._stepper
    plan, step = engine.scheduler.plan, stepper.step
    plans: list[Plan] = []
    bare: list[float] = []

    def noted() -> Plan:
        plans.append(plan())
        return plans[-1]

    def doubled() -> bool:
        done = step()
        if done:
            begin = time.perf_counter()
            model.forward(plans[-1], cache)
            bare.append(time.perf_counter() - begin)
        return done

    engine.scheduler.plan, stepper.step = noted, doubled  # type: ignore[method-assign]
    prompts, params = _requests(given, llm.spec.vocab_size)
    begin = time.perf_counter()
    outputs = llm.generate(prompts, params)
    if not bare:
        raise SystemExit("no step was seen: the engine steps in another way than this script knows")
    raw = sum(bare)
    seconds = time.perf_counter() - begin - raw
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    print(f"round {round_ + 1}: {seconds:.1f} s, forward passes alone {raw:.1f} s", file=sys.stderr)
    return {"seconds": seconds, "raw_seconds": raw, "tokens": tokens, "steps": len(bare)}


def _say_rate(rounds: list[dict[str, float]]) -> None:
    ratios = [found["raw_seconds"] / found["seconds"] for found in rounds]
    rate = statistics.median(found["tokens"] / found["seconds"] for found in rounds)
    print(f"LLM.generate: {rate:.0f} tokens/s written, {statistics.median(ratios):.3f} of the")
    print(f"backend's rate on the same plans: {' '.join(f'{ratio:.3f}' for ratio in ratios)}")


def _policies(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds, steps, and the sequences in each step, of both policies in turn."""
    found: dict[str, Any] = {}
    for _ in range(given.rounds):
        for policy in ("continuous", "static"):
            llm = _open(given, policy=policy)
            running: list[tuple[float, float, int]] = []

            def note(record: StepRecord, running: list[Any] = running) -> None:
                running.append((record.start, record.total_seconds, len(record.spans)))

            llm.engine.subscribe(note)
            prompts, params = _requests(given, llm.spec.vocab_size)
            begin = time.perf_counter()
            outputs = llm.generate(prompts, params)
            seconds = time.perf_counter() - begin
            kept = found.setdefault(policy, {"seconds": [], "steps": len(running)})
            kept["seconds"].append(seconds)
            kept["tokens"] = sum(len(output.outputs[0].token_ids) for output in outputs)
            first = running[0][0]
            kept["running"] = [(start - first, took, n) for start, took, n in running]
            llm.close()
    pairs = zip(found["static"]["seconds"], found["continuous"]["seconds"], strict=True)
    found["ratios"] = [static / continuous for static, continuous in pairs]
    found["step_ratio"] = found["static"]["steps"] / found["continuous"]["steps"]
    ratios = " ".join(f"{ratio:.2f}" for ratio in found["ratios"])
    print(
        f"continuous batching is {statistics.median(found['ratios']):.2f} times as fast as static:"
    )
    print(f"{ratios}; {found['step_ratio']:.2f} times fewer steps")
    return found


def _prefix(given: argparse.Namespace) -> list[dict[str, float]]:
    """Seconds to the first token: prefix computed, and prefix taken from the cache."""
    llm = _open(given)
    vocab = llm.spec.vocab_size
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    found = []
    for round_ in range(given.rounds + 3):
        prefix = [(1299709 * (round_ + 1) + 7919 * k) % vocab for k in range(PREFIX)]
        times = []
        for own in range(2):
            [output] = llm.generate([[*prefix, *range(own * 10, own * 10 + 10)]], params)
            assert output.metrics is not None
            times.append(output.metrics.time_to_first_token)
        found.append({"first": times[0], "second": times[1], "share": times[1] / times[0]})
    share = statistics.median(one["share"] for one in found)
    first = statistics.median(one["first"] for one in found)
    print(f"a prefix of {PREFIX} tokens: first token after {first * 1e3:.0f} ms, the second time")
    print(f"after {share:.1%} of that: {' '.join(format(one['share'], '.1%') for one in found)}")
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--seqs", type=int, default=32, help="answers that run at once")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--part", dest="parts", action="append", choices=PARTS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="of the two policies, SVG")
    given = parser.parse_args()
    given.parts = given.parts or list(PARTS)
    return given


PARTS = ("rate", "policies", "prefix")

if __name__ == "__main__":
    main()
