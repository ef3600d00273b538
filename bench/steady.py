"""Whether the same work goes on at the same rate: for hours, if asked.

    python bench/steady.py [MODEL] --seconds 7200 [--parts 8] [--json FILE]

Through the whole engine, over and over: a prompt of 512 tokens, then 64 tokens of one sequence,
then 32 of 32 together. Beside each round a plain read of memory, so that a machine which slows down
is told from an engine which does. Said of each part of the time are the median rates and the
memory of the process; at last, the last half's rates over the first's. The exit code is 1 if one is
below 0.95 although memory is read as fast.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from pellucid import LLM, SamplingParams
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve
from pellucid.ops.native.peaks import Probe

# name -> sequences, tokens of each one's prompt, tokens of each answer
WORK = {"prefill 512": (1, 512, 1), "decode 1": (1, 16, 65), "decode 32": (32, 16, 33)}
READ = "plain read"  # bytes a second
READ_BYTES = 100_000_000
LEAST = 0.95


def main() -> int:
    given = _arguments()
    llm = LLM(
        str(resolve(given.model, progress=TerminalProgress())),
        backend="native",
        threads=given.threads,
        max_model_len=1024,
        seed=0,
    )
    probe = Probe(given.threads, READ_BYTES)
    begin = time.monotonic()
    rounds: list[dict[str, float]] = []
    parts = 0
    while (now := time.monotonic() - begin) < given.seconds or len(rounds) < 2:
        found = {"at": now, READ: probe.measure().read}
        for name in WORK:
            found[name] = rate(llm, name, len(rounds))
        found["resident"] = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        rounds.append(found)
        if now * given.parts >= (parts + 1) * given.seconds:
            parts += 1
            _say(rounds[-max(len(rounds) // parts, 1) :])
    halves = rounds[: len(rounds) // 2], rounds[len(rounds) // 2 :]
    ratios = {name: _median(halves[1], name) / _median(halves[0], name) for name in (READ, *WORK)}
    print("last half over first: " + ", ".join(f"{n} {r:.3f}" for n, r in ratios.items()))
    if given.json:
        given.json.write_text(json.dumps({"rounds": rounds, "ratios": ratios}, indent=1) + "\n")
    slower = [name for name in WORK if ratios[name] < LEAST * min(ratios[READ], 1.0)]
    return 1 if slower else 0


def rate(llm: LLM, name: str, salt: int) -> float:
    """Tokens a second of one kind of work: of the prompt, or of the answers after their first."""
    sequences, prompt, answer = WORK[name]
    vocabulary = llm.spec.vocab_size
    prompts: list[Any] = [
        {"prompt_token_ids": [(7 * i + 31 * s + salt) % (vocabulary - 100) for i in range(prompt)]}
        for s in range(sequences)
    ]
    params = SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True)
    outputs = llm.generate(prompts, params, cache_salt=f"{name} {salt}")
    metrics = [output.metrics for output in outputs]
    if answer == 1:
        return prompt / metrics[0].time_to_first_token
    return sequences * (answer - 1) / max(m.finished_time - m.time_to_first_token for m in metrics)


def _median(rounds: list[dict[str, float]], name: str) -> float:
    return statistics.median(found[name] for found in rounds)


def _say(rounds: list[dict[str, float]]) -> None:
    rates = ", ".join(f"{name} {_median(rounds, name):.0f} tok/s" for name in WORK)
    read, memory = _median(rounds, READ) / 1e9, rounds[-1]["resident"] / 1024
    print(
        f"{rounds[-1]['at']:7.0f} s: {rates}; read {read:.1f} GB/s, at most {memory:.0f} MiB",
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.seconds <= 0 or given.parts < 1 or given.threads < 1:
        parser.error("--seconds, --parts and --threads must be positive")
    return given


if __name__ == "__main__":
    sys.exit(main())
