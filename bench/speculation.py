"""Speculation beside plain decoding, in turn, with the machine's bound beside each result.

    python bench/speculation.py MODEL --method ngram [--tasks quoting] [--json FILE]
    python bench/speculation.py MODEL --method draft --draft SMALLER --tasks code
        [--llama-cpp PYTHON]

"bound" is what the same rounds would bring if nothing but the rows of their steps cost time;
"share" is what was measured over it. Each answer with drafts stands between two without; the
"control" is one without drafts that stands so. "+-" is half of what the middle half of the rounds'
ratios spans. "steady" is the ratio, and its control, of times in which steps that were held up do
not count. How far the tasks' steady controls stray from 1 is how far a steady ratio may by chance:
a task is slower than is allowed (`LEAST`) where it is so by more than that.

With an interpreter that has llama-cpp-python, llama.cpp answers each task too, beside ours, plain
and with the same draft model: its rate, and ours over it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from peers.client import Worker

from pellucid import LLM, SamplingParams
from pellucid.bench.speculation import (
    TaskResult,
    asked,
    compare,
    control_spread,
    overall,
    step_seconds,
    summed_places,
    warm,
)
from pellucid.bench.tasks import TASKS
from pellucid.core.errors import BadInput
from pellucid.hub import DEFAULT_MODEL
from pellucid.speculation.settings import METHODS

# Of plain decoding's rate, what each task must reach.
LEAST = 0.97


def main() -> None:
    given = _arguments()
    if given.llama_cpp and given.method != "draft":
        raise SystemExit("--llama-cpp is for --method draft: it guesses by the same draft model")
    if given.cpu:
        given.threads = 1
    clock = time.process_time if given.cpu else time.perf_counter
    settings = {"method": given.method, "model": given.draft, "tokens": given.tokens}
    settings["layers"] = given.layers
    settings |= {"quantization": given.quantization, "vocabulary": given.vocabulary}
    settings["adaptive"] = not given.fixed
    wanted = {name: value for name, value in settings.items() if value is not None}
    try:
        llm = LLM(
            given.model,
            speculative=wanted,
            max_model_len=given.max_model_len,
            enable_prefix_caching=False,
            threads=given.threads,
        )
    except BadInput as error:
        raise SystemExit(str(error)) from None
    seconds = step_seconds(llm, clock)
    _print_bound(given, seconds)
    warm(llm)
    results: list[TaskResult] = []
    theirs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        peer = _peer(given, llm, Path(scratch) / "log") if given.llama_cpp else None
        for task, text in list(TASKS[given.tasks].items())[given.skip :][: given.n_tasks]:
            result = compare(
                llm,
                task,
                text,
                given.length,
                seconds,
                rounds=given.rounds,
                control=True,
                clock=clock,
            )
            results.append(result)
            _print(result)
            if peer is not None:
                theirs.append(_beside(peer, llm, text, result))
        if peer is not None:
            peer.close()
    _print_summary(results, theirs)
    if given.json is not None:
        found = {"model": str(given.model), "settings": settings, "step_seconds": seconds}
        found["results"] = [result.to_json() for result in results]
        found["llama_cpp"] = theirs
        given.json.write_text(json.dumps(found, indent=1, default=str) + "\n")


def _peer(given: argparse.Namespace, llm: LLM, log: Path) -> Worker:
    script = Path(__file__).parent / "peers/llama_cpp_speculation_worker.py"
    configuration = {
        "model": str(llm.model_path),
        "draft": str(given.draft),
        "threads": given.threads or llm.engine.model.ops.threads,
        "context": given.max_model_len,
    }
    return Worker(given.llama_cpp, script, configuration, log)


def _beside(peer: Worker, llm: LLM, text: str, result: TaskResult) -> dict[str, float]:
    """llama.cpp's tokens a second at as many tokens of the same task."""
    [output] = llm.chat(asked(text), SamplingParams(max_tokens=1, speculative=False))
    case = {"prompt": output.prompt_token_ids, "tokens": result.n_tokens}
    rates = {
        name: peer.measure({**case, "speculative": drafts}, 0)
        for name, drafts in (("plain", False), ("speculative", True))
    }
    print(
        f"{'  llama.cpp':14} {'':5} {rates['plain']:8.1f} {rates['speculative']:8.1f} "
        f"{rates['speculative'] / rates['plain']:6.2f}   ours over theirs, with drafts: "
        f"{result.speculative / rates['speculative']:.2f}"
    )
    return rates


def _print(result: TaskResult) -> None:
    print(
        f"{result.task:14} {result.n_tokens:5} {result.plain:8.1f} {result.speculative:8.1f} "
        f"{result.ratio:6.2f} {result.spread:5.2f} {result.control:7.2f} "
        f"{result.steady:7.3f} {result.steady_control:7.3f} "
        f"{result.bound:6.2f} {result.share:6.2f}   "
        f"{result.accepted}/{result.guessed} in {result.drafts}   "
        f"{result.draft_ms:.2f} + {result.forward_ms:.2f} + {result.rest_ms:.2f}",
        flush=True,
    )


def _print_bound(given: argparse.Namespace, seconds: dict[int, float]) -> None:
    print(f"{Path(str(given.model)).name}: a step of one row takes {1000 * seconds[1]:.2f} ms")
    print("rows         " + "".join(f"{rows:8}" for rows in seconds))
    print("step, x      " + "".join(f"{t / seconds[1]:8.2f}" for t in seconds.values()))
    print("bound, x     " + "".join(f"{r * seconds[1] / t:8.2f}" for r, t in seconds.items()))
    print(
        f"\n{'task':14} {'tok':>5} {'plain/s':>8} {'spec/s':>8} {'ratio':>6} "
        f"{'+-':>5} {'control':>7} {'steady':>7} {'control':>7} {'bound':>6} {'share':>6}   "
        "accepted   ms a token: draft + forward + rest"
    )


def _print_summary(results: list[TaskResult], theirs: list[dict[str, float]]) -> None:
    ratios = [result.ratio for result in results]
    print(
        f"\nall: {overall(results):.2f}; each: median {statistics.median(ratios):.2f}, "
        f"least {min(ratios):.2f}"
    )
    spread = control_spread(results)
    assert spread is not None
    slow = [result.task for result in results if result.steady < LEAST - spread]
    print(
        f"steady: median {statistics.median([x.steady for x in results]):.3f}, least "
        f"{min(x.steady for x in results):.3f}; their controls stray by {spread:.3f}; "
        f"slower than {LEAST} by more than that: {', '.join(slow) or 'none'}"
    )
    shown = "  ".join(f"{right}/{looked}" for looked, right in summed_places(results))
    print(f"accepted by place, of those looked at: {shown or 'nothing was guessed'}")
    if theirs:
        pairs = zip(results, theirs, strict=True)
        over = [result.speculative / rates["speculative"] for result, rates in pairs]
        gains = [rates["speculative"] / rates["plain"] for rates in theirs]
        print(
            f"llama.cpp gains {statistics.median(gains):.2f} by drafts (median); ours over "
            f"theirs, both with drafts: median {statistics.median(over):.2f}, least {min(over):.2f}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--method", choices=METHODS, default="ngram")
    parser.add_argument("--draft", help="a smaller model, for --method draft")
    parser.add_argument("--tokens", type=int, help="the most that is guessed at once")
    parser.add_argument("--quantization", help="the type of the draft's weights")
    parser.add_argument("--vocabulary", type=int, help="tokens that the draft gives scores of")
    parser.add_argument("--layers", type=int, help="layers that guess, for --method early-exit")
    parser.add_argument("--fixed", action="store_true", help="always guess that many")
    parser.add_argument("--tasks", choices=sorted(TASKS), default="quoting")
    parser.add_argument("--skip", type=int, default=0, help="the first so many tasks are left out")
    parser.add_argument("--n-tasks", type=int, default=100)
    parser.add_argument("--length", type=int, default=160, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--cpu", action="store_true", help="one thread, by processor time: for a busy machine"
    )
    parser.add_argument("--max-model-len", type=int, default=1024)
    parser.add_argument(
        "--llama-cpp", metavar="INTERPRETER", help="an interpreter with llama-cpp-python"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
