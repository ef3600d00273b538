"""Two replicas: a crowd while one of them is killed, and what it is worth to follow prefixes.

    python bench/replicas.py kill [MODEL] [--clients 200] [--tokens 48]
    python bench/replicas.py routing [MODEL] [--ports PREFIX ROUND_ROBIN]

kill: every client streams an answer, and one replica gets SIGKILL once streams have tokens out. A
stream ends whole, with the tokens that the engine gives it alone, or with an error event; a client
that was told so asks again. Nothing may be lost without a word, and the replica must come back.

routing: prompts that share one of a dozen long beginnings, more than one replica's pages hold and
less than two do; times to the first token, prefix-aware routing against round robin, in turn. With
`--ports` on two servers that run already.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from http_streams import Answer, Server, ask, get, metrics, served

from pellucid import LLM, SamplingParams
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve

DISTINCT = 40  # prompts; each is asked several times
UNDER_WAY = 16  # streams that have tokens out when the replica is killed
GROUPS, PREFIX_WORDS, CLIENTS, TURNS = 12, 420, 4, 2
PAGES_MEMORY = "80MiB"  # about eight of the dozen beginnings, at SmolLM2-135M's 22.5 KiB a token
FLAGS = ("--replicas", "2", "--no-access-log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kill", "routing"))
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--requests", type=int, default=36, help="of each turn, for routing")
    parser.add_argument("--ports", type=int, nargs=2)
    given = parser.parse_args()
    model = resolve(given.model, progress=TerminalProgress())
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        if given.what == "kill":
            log = Path(scratch) / "log"
            server = stack.enter_context(served(model, log, *FLAGS, "--kv-cache-memory", "512MiB"))
            result = asyncio.run(kill(server, given, alone(model, given.tokens)))
        else:
            ports = given.ports or [
                stack.enter_context(
                    served(model, Path(scratch) / name, *FLAGS, *flags_of(name))
                ).port
                for name in ("prefix", "round-robin")
            ]
            result = asyncio.run(routing(ports, given.requests))
    print(json.dumps(result, indent=1))


def flags_of(policy: str) -> tuple[str, ...]:
    """Of a server for `routing`."""
    return ("--routing", policy, "--kv-cache-memory", PAGES_MEMORY)


def alone(model: Path, tokens: int) -> dict[str, list[int]]:
    """What each prompt is answered without company."""
    prompts = [f"Number {i} of the things that a harbour needs is" for i in range(DISTINCT)]
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    with LLM(model, enable_prefix_caching=False, max_num_seqs=8) as llm:
        outputs = llm.generate(prompts, params)
    return {p: o.outputs[0].token_ids for p, o in zip(prompts, outputs, strict=True)}


async def kill(
    server: Server, given: argparse.Namespace, expected: dict[str, list[int]]
) -> dict[str, Any]:
    prompts = [list(expected)[i % DISTINCT] for i in range(given.clients)]
    bodies = [_body(prompt, given.tokens) for prompt in prompts]
    answers = [Answer() for _ in prompts]
    asked = [
        asyncio.create_task(ask(server.port, "/v1/completions", body, answer=answer))
        for body, answer in zip(bodies, answers, strict=True)
    ]
    while sum(bool(a.lines) and a.lines[-1] != b"[DONE]" for a in answers) < UNDER_WAY:
        await asyncio.sleep(0.01)
    victims = _replicas(server.process.pid)
    os.kill(victims[0], signal.SIGKILL)
    killed = time.perf_counter()
    health: Counter[str] = Counter()
    watching = asyncio.create_task(_watch(server.port, health))
    await asyncio.gather(*asked)
    ends = Counter(_end_of(answer) for answer in answers)
    again = [i for i, answer in enumerate(answers) if not answer.whole]
    second = await asyncio.gather(*(ask(server.port, "/v1/completions", bodies[i]) for i in again))
    for i, answer in zip(again, second, strict=True):
        answers[i] = answer
    back_after = await watching - killed
    equal = sum(
        a.whole and a.token_ids == expected[p] for p, a in zip(prompts, answers, strict=True)
    )
    counted = await metrics(server.port)
    return {
        "clients": given.clients,
        "ended": dict(ends),
        "retried_by_the_server": counted["replica_requests_retried_total"],
        "lost_by_its_count": counted["replica_requests_lost_total"],
        "asked_again": len(again),
        "whole_and_equal_in_the_end": equal,
        "replica_back_after_s": round(back_after, 1),
        "health_meanwhile": dict(health),
        "replicas_now": counted["replicas"],
        "pages_owned_now": counted["kv_cache_pages owned"],
    }


def _end_of(answer: Answer) -> str:
    if answer.whole:
        return "whole"
    if answer.error is None:
        return "without a word"
    return f"{answer.error['code']}, {'with' if answer.token_ids else 'without'} tokens out"


async def _watch(port: int, seen: Counter[str]) -> float:
    """When all replicas are there again."""
    missed = False
    while True:
        status, body = await get(port, "/health")
        state = json.loads(body).get("status", f"HTTP {status}")
        seen[state] += 1
        missed |= state != "ok"
        if missed and state == "ok":
            return time.perf_counter()
        await asyncio.sleep(0.1)


def _replicas(root: int) -> list[int]:
    """Process ids of the replicas that came of `root`."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                pid = int(folder.name)
                parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                names[pid] = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
    return [p for p, name in names.items() if "ServeReplica" in name and _came_of(p, root, parents)]


def _came_of(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid > 1 and pid != root:
        pid = parents.get(pid, 0)
    return pid == root


async def routing(ports: list[int], requests: int) -> dict[str, Any]:
    """Turns of A and B; the first of each fills the caches and does not count."""
    names = ("prefix", "round-robin")
    found: dict[str, list[Answer]] = {name: [] for name in names}
    for turn in range(TURNS + 1):
        for name, port in zip(names, ports, strict=True):
            answers = await _turn(port, requests, turn)
            if turn:
                found[name] += answers
    firsts = {name: [a.first_after for a in found[name]] for name in names}
    medians = {name: statistics.median(firsts[name]) for name in names}
    result: dict[str, Any] = {
        name: {
            "requests": len(times),
            "ttft_median_s": round(medians[name], 3),
            "ttft_p95_s": round(statistics.quantiles(times, n=20)[-1], 3),
            "cached_share": round(_cached_share(found[name]), 3),
        }
        for name, times in firsts.items()
    }
    result["ttft_ratio_median"] = round(medians["round-robin"] / medians["prefix"], 2)
    means = [statistics.mean(firsts[name]) for name in ("round-robin", "prefix")]
    result["ttft_ratio_mean"] = round(means[0] / means[1], 2)
    return result


async def _turn(port: int, requests: int, turn: int) -> list[Answer]:
    """The same prompts at both servers: `CLIENTS` clients, each with its next request as the last
    has ended."""
    rng = random.Random(turn)
    prompts = [f"{_beginning(rng.randrange(GROUPS))} {turn} {i}" for i in range(requests)]
    waiting = iter(prompts)
    answers: list[Answer] = []

    async def client() -> None:
        for prompt in waiting:
            answers.append(await ask(port, "/v1/completions", _body(prompt, 4)))

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert all(answer.whole for answer in answers)
    return answers


def _beginning(group: int) -> str:
    words = random.Random(1000 + group)
    return " ".join(words.choice(WORDS) for _ in range(PREFIX_WORDS))


def _cached_share(answers: list[Answer]) -> float:
    cached = total = 0
    for answer in answers:
        usage = next(event["usage"] for event in answer.events if event.get("usage"))
        cached += usage["prompt_tokens_details"]["cached_tokens"]
        total += usage["prompt_tokens"]
    return cached / total


def _body(prompt: str, tokens: int) -> bytes:
    asked = {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    return json.dumps(asked).encode()


WORDS = "sea boat rope harbour wind north mast tide sail rock light star map song bread".split()


if __name__ == "__main__":
    main()
