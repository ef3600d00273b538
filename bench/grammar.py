"""What a grammar costs: time a token of constrained answers over that of free ones, in turn.

    python bench/grammar.py MODEL.gguf [--tokens 64] [--rounds 5] [--batch 1 8] [--greedy]
        [--threads N]

Each round measures the free answers and then each form, so that a machine that wanders does so for
all. No answer ends before its --tokens are out. The figure is the median over the rounds of the
ratio within a round.

On a machine shared with others, with `--threads 1`: `--clock thread` counts the processor's time of
the thread that runs the engine, `--clock cpu` of the whole process, masks included. Masks are made
beside the step, so that what a stream pays lies between the two.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from pellucid import LLM, SamplingParams

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string", "pattern": "^[a-z]{2,12}@[a-z]{2,12}\\.(org|com)$"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4},
    },
    "required": ["name", "age", "email", "tags"],
    "additionalProperties": False,
}
FORMS: dict[str, dict[str, Any]] = {
    "JSON schema": {"json": {"type": "array", "items": PERSON, "minItems": 100_000}},
    "any JSON": {"json": {"type": "array", "minItems": 100_000}},
    "regex": {"regex": "([A-Z][a-z]+( [a-z]+){2,9}[.?!] ){1000,}"},
    "grammar": {"grammar": 'start: line+\nline: "- " /[^\\n]{3,40}/ "\\n"'},
}
PROMPT = "Describe ten people who live in a small town by the sea."


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time, "thread": time.thread_time}


def seconds_per_token(llm: LLM, params: SamplingParams, batch: int, clock: str) -> float:
    start = CLOCKS[clock]()
    outputs = llm.chat([[{"role": "user", "content": PROMPT}]] * batch, params)
    seconds = CLOCKS[clock]() - start
    return seconds / sum(len(output.outputs[0].token_ids) for output in outputs)


def main() -> None:
    given = _arguments()
    llm = LLM(given.model, threads=given.threads)
    common = {
        "max_tokens": given.tokens,
        "ignore_eos": True,
        "seed": 1,
        "temperature": 0.0 if given.greedy else 0.7,
    }
    free = SamplingParams(**common)
    forms = {name: SamplingParams(**common, structured_outputs=f) for name, f in FORMS.items()}
    for name, params in forms.items():  # compile, and fill what is filled once
        start = time.perf_counter()
        llm.front.request(llm.front.prompt(PROMPT), params)
        print(f"compile {name}: {1e3 * (time.perf_counter() - start):.0f} ms")
    for batch in given.batch:
        ratios: dict[str, list[float]] = {name: [] for name in ("free again", *forms)}
        paces = []
        for _ in range(given.rounds):
            base = seconds_per_token(llm, free, batch, given.clock)
            paces.append(1 / base)
            for name, params in (("free again", free), *forms.items()):
                ratios[name].append(seconds_per_token(llm, params, batch, given.clock) / base)
        print(f"batch {batch}: free {statistics.median(paces):.0f} tokens/s")
        for name, found in ratios.items():
            print(f"  {name:12} {statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})")
    llm.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--greedy", action="store_true", help="temperature 0 instead of 0.7")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    return parser.parse_args()


if __name__ == "__main__":
    main()
