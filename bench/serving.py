"""The server under 32 clients: its rate beside the engine's own, and beside llama.cpp's.

    python bench/serving.py [MODEL] [--peer-python PYTHON] [--rounds 2] [--json FILE]

64 requests of 50 prompt and 64 output tokens, 32 at a time, over HTTP and as streams; then the same
work by the engine in this process (`LLM.generate`), in turn. Every stream must give the tokens that
the engine gives. The peer is llama.cpp's C API on half of the work: 32 sequences, prompts of 50
tokens in batches of 512, then 64 steps; its time is that of llama_decode alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from http_streams import Answer, Server, ask, processor_seconds, served
from peers.client import Worker

from pellucid import LLM, SamplingParams
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve

HERE = Path(__file__).resolve().parent
CLIENTS, REQUESTS, PROMPT, OUTPUT = 32, 64, 50, 64
REST = 0.5  # seconds: threads that linger after the last measurement go to sleep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--peer-python", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model = resolve(given.model, progress=TerminalProgress())
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(model, given, Path(scratch))
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(model: Path, given: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    rounds: list[dict[str, Any]] = []
    threads = ("--threads", str(given.threads), "--max-num-seqs", str(CLIENTS))
    with (
        LLM(model, threads=given.threads, max_num_seqs=CLIENTS) as llm,
        served(model, scratch / "server.log", *threads, "--no-access-log") as server,
    ):
        both(llm, server, prompts_of(llm, 1000), warm=True)
        for number in range(given.rounds):
            rounds.append(both(llm, server, prompts_of(llm, number)))
            print(json.dumps(rounds[-1]), file=sys.stderr, flush=True)
    if given.peer_python:
        peer = peer_rates(model, given, scratch)
        for one, rate in zip(rounds, peer, strict=True):
            one["llama.cpp"] = rate
            one["over_llama.cpp"] = one["server"] / rate
    return {
        "threads": given.threads,
        "rounds": rounds,
        "server_over_engine": statistics.median(one["server_over_engine"] for one in rounds),
    }


def both(
    llm: LLM, server: Server, prompts: list[list[int]], *, warm: bool = False
) -> dict[str, Any]:
    """The same prompts by the engine here and over HTTP; tokens a second of each."""
    if warm:
        prompts = prompts[:CLIENTS]
    params = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
    time.sleep(REST)
    begin = time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)
    own = time.perf_counter() - begin
    time.sleep(REST)
    processes = server.process.pid, server.engine()
    before = [processor_seconds(pid) for pid in processes]
    begin = time.perf_counter()
    answers = asyncio.run(crowd(server.port, prompts))
    seconds = time.perf_counter() - begin
    http, engine = (processor_seconds(pid) - at for pid, at in zip(processes, before, strict=True))
    for answer, output in zip(answers, outputs, strict=True):
        assert answer.whole, answer.lines[-2:]
        assert answer.token_ids == output.outputs[0].token_ids, "a stream differs from the engine"
    tokens = len(prompts) * OUTPUT
    return {
        "engine": tokens / own,
        "server": tokens / seconds,
        "server_over_engine": own / seconds,
        "http_processor_s": http,
        "engine_processor_s": engine,
        "median_time_to_first_token_s": statistics.median(a.first_after for a in answers),
        "worst_time_to_first_token_s": max(a.first_after for a in answers),
        "worst_silence_s": max(a.longest_silence for a in answers),
    }


async def crowd(port: int, prompts: list[list[int]]) -> list[Answer]:
    """`CLIENTS` at a time, each taking the next prompt when it is done."""
    left = iter(enumerate(prompts))
    answers: dict[int, Answer] = {}

    async def client() -> None:
        for number, prompt in left:
            body = {
                "prompt": prompt,
                "max_tokens": OUTPUT,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "return_token_ids": True,
            }
            answers[number] = await ask(port, "/v1/completions", body)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return [answers[number] for number in range(len(prompts))]


def prompts_of(llm: LLM, salt: int) -> list[list[int]]:
    """Token ids that no other round has, so that no prefix cache answers."""
    vocabulary = llm.spec.vocab_size - 1000
    return [
        [1000 + (salt * 1299709 + r * 104729 + i * 7919) % vocabulary for i in range(PROMPT)]
        for r in range(REQUESTS)
    ]


def peer_rates(model: Path, given: argparse.Namespace, scratch: Path) -> list[float]:
    """Output tokens a second of llama.cpp, prompts included in the time."""
    case = {"kind": "serve", "sequences": CLIENTS, "context": PROMPT, "tokens": OUTPUT}
    script = HERE / "peers/llama_cpp_worker.py"
    configuration = {"model": str(model), "threads": given.threads}
    worker = Worker(given.peer_python, script, configuration, scratch / "peer.log", timeout=600.0)
    try:
        return [worker.measure(case, salt) for salt in range(given.rounds)]
    finally:
        worker.close()


if __name__ == "__main__":
    main()
