"""What a plan says that a change is worth, beside what it is worth to the real engine here.

    python bench/what_if.py [MODEL] [--rounds 3] [--requests 48] [--json FILE]

Three changes: places for sequences (4 and 16), the prefix cache (off and on, prompts that share
four fifths), n-gram guesses (off and on, prompts that repeat themselves). Both sides are what an
engine ends of requests a second when it has more than it can run: `pellucid plan` of this machine,
by its calibration if there is one, and `LLM.generate` of many requests at once, the two settings in
turn in each round. What is compared is the ratio of the two; of guesses the plan is told the share
that was right. `bench/what_if_table.py` writes the results into docs/plan.md.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plan_machine import Others

from pellucid import LLM, SamplingParams
from pellucid.engine.machine import processor_name
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve

PROMPT, OUTPUT, SHARED, GUESSES = 200, 40, 0.8, 4
MEMORY = 512 << 20


@dataclass(frozen=True)
class Change:
    """From one setting to another: arguments of `LLM`, and flags of `pellucid plan`."""

    name: str
    before: dict[str, Any]
    after: dict[str, Any]
    plan_before: tuple[str, ...] = ()
    plan_after: tuple[str, ...] = ()
    shared: float = 0.0
    repeats: bool = False
    common: dict[str, Any] = field(default_factory=dict)


CHANGES = (
    Change("16 places in place of 4", {"max_num_seqs": 4}, {"max_num_seqs": 16},
           ("--max-num-seqs", "4"), ("--max-num-seqs", "16")),
    Change("the prefix cache, four fifths shared", {"enable_prefix_caching": False},
           {"enable_prefix_caching": True}, ("--no-prefix-caching", "--max-num-seqs", "8"),
           ("--max-num-seqs", "8"), SHARED, common={"max_num_seqs": 8}),
    Change("n-gram guesses on text that repeats itself", {},
           {"speculative": {"method": "ngram", "tokens": GUESSES}}, ("--max-num-seqs", "2"),
           ("--max-num-seqs", "2", "--speculative-tokens", str(GUESSES)), repeats=True,
           common={"max_num_seqs": 2}),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model = resolve(given.model, progress=TerminalProgress())
    others = Others()
    rows = [_row(model, change, given) for change in CHANGES]
    result = {
        "model": model.stem,
        "processor": processor_name(),
        "date": time.strftime("%Y-%m-%d"),
        "rounds": given.rounds,
        "requests": given.requests,
        "cores_that_others_took": round(others.cores(), 2),
        "rows": rows,
    }
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def _row(model: Path, change: Change, given: argparse.Namespace) -> dict[str, Any]:
    ratios, right = [], []
    for number in range(given.rounds):
        rates = {}
        for name in ("before", "after") if number % 2 == 0 else ("after", "before"):
            rates[name], share = _served(model, change, name, number, given.requests)
            right += [share] if share is not None else []
        ratios.append(rates["after"] / rates["before"])
    flags = list(change.plan_after)
    accepted = statistics.mean(right) if right else None
    if accepted is not None:
        flags += ["--speculative-acceptance", f"{_chance(accepted):.3f}"]
    after = _planned(model, change, flags)
    return {
        "change": change.name,
        "predicted": round(after / _planned(model, change, list(change.plan_before)), 3),
        "measured": [round(f(ratios), 3) for f in (min, statistics.median, max)],
        "right": None if accepted is None else round(accepted, 3),
    }


def _served(
    model: Path, change: Change, name: str, seed: int, requests: int
) -> tuple[float, float | None]:
    """Requests a second, and the share of guesses that were right, where some were."""
    settings = change.before if name == "before" else change.after
    arguments = {"kv_cache_memory_bytes": MEMORY, "seed": 0, **change.common, **settings}
    params = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
    with LLM(model, **arguments) as llm:
        prompts = _prompts(llm.spec.vocab_size, change, seed, requests)
        llm.generate(prompts[:1], params)  # pages and programs are there
        began = time.perf_counter()
        outputs = llm.generate(prompts[1:], params)
        seconds = time.perf_counter() - began
    metrics = [output.metrics for output in outputs if output.metrics is not None]
    guessed = sum(one.guessed_tokens for one in metrics)
    share = sum(one.accepted_tokens for one in metrics) / guessed if guessed else None
    return len(outputs) / seconds, share


def _prompts(vocabulary: int, change: Change, seed: int, requests: int) -> list[dict[str, Any]]:
    drawn = random.Random(seed)
    shared = [drawn.randrange(100, vocabulary) for _ in range(round(change.shared * PROMPT))]
    found = []
    for _ in range(requests + 1):
        if change.repeats:
            own = [drawn.randrange(100, vocabulary) for _ in range(10)] * (PROMPT // 10)
        else:
            own = [drawn.randrange(100, vocabulary) for _ in range(PROMPT - len(shared))]
        found.append({"prompt_token_ids": shared + own})
    return found


def _chance(share: float) -> float:
    """Of a guess to be right if those before it were, of which `share` of all guesses are."""
    low, high = 0.0, 1.0
    for _ in range(40):
        chance = (low + high) / 2
        if sum(chance**k for k in range(1, GUESSES + 1)) / GUESSES < share:
            low = chance
        else:
            high = chance
    return max(0.001, min(0.999, low))


def _planned(model: Path, change: Change, flags: list[str]) -> float:
    """Requests a second at saturation, as `pellucid plan` says."""
    command = [
        sys.executable, "-m", "pellucid", "plan", str(model), "--json", "--no-what-if",
        "--prompt-tokens", str(PROMPT), "--output-tokens", str(OUTPUT), "--rates", "0.1",
        "--shared-prefix", str(change.shared), *flags,
    ]  # fmt: skip
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    found: float = json.loads(said.stdout)["saturation"]["requests_per_second"]
    return found


if __name__ == "__main__":
    main()
