"""A thousand streams at once: none lost, each what it is alone, memory flat.

    python bench/crowd.py [MODEL] [--streams 1000] [--tokens 32] [--json FILE]

Three scenes on one server: every client stays; one in ten leaves in the middle; the engine is
killed once. An answer that comes to its end must have the tokens that the engine gives it alone
(`LLM.generate` here, one prompt at a time); one that does not must say why. A client whose stream
the kill ended asks again. Afterwards nothing may be left: no answer inside, no page owned, the
memory and the descriptors of before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from http_streams import Answer, Server, ask, descriptors, metrics, resident_bytes, served

from pellucid import LLM, SamplingParams
from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve

DISTINCT = 40  # prompts; each is asked many times
UNDER_WAY = 16  # streams that have tokens out when the engine is killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model = resolve(given.model, progress=TerminalProgress())
    with LLM(model, enable_prefix_caching=False, max_num_seqs=1) as llm:
        prompts = [f"Number {i} of the things that a harbour needs is" for i in range(DISTINCT)]
        params = SamplingParams(temperature=0, max_tokens=given.tokens, ignore_eos=True)
        alone = {p: llm.generate(p, params)[0].outputs[0].token_ids for p in prompts}
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "server.log"
        with served(model, log, "--no-access-log", "--kv-cache-memory", "512MiB") as server:
            result = {
                scene.__name__: asyncio.run(_scene(scene, server, given, alone))
                for scene in (all_stay, one_in_ten_leaves, engine_is_killed)
            }
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


async def all_stay(server: Server, bodies: list[bytes]) -> list[Answer]:
    return await asyncio.gather(*(_ask(server, body) for body in bodies))


async def one_in_ten_leaves(server: Server, bodies: list[bytes]) -> list[Answer]:
    return await asyncio.gather(
        *(_ask(server, body, 3 if i % 10 == 0 else None) for i, body in enumerate(bodies))
    )


async def engine_is_killed(server: Server, bodies: list[bytes]) -> list[Answer]:
    answers = [Answer() for _ in bodies]
    asked = [
        asyncio.create_task(_ask(server, body, answer=answer))
        for body, answer in zip(bodies, answers, strict=True)
    ]
    while sum(_under_way(answer) for answer in answers) < min(UNDER_WAY, len(bodies)):
        await asyncio.sleep(0.01)
    os.kill(server.engine(), signal.SIGKILL)
    await asyncio.gather(*asked)
    ended = [i for i, answer in enumerate(answers) if not answer.whole]
    for answer in (answers[i] for i in ended):
        assert answer.error is not None, "a stream was cut without a word"
        assert answer.error["code"] == "engine_unavailable", answer.error
    in_the_middle = sum(bool(answers[i].token_ids) for i in ended)
    assert in_the_middle, "the kill met no stream that had begun"
    print(
        f"the kill ended {len(ended)} streams, {in_the_middle} of them with tokens out, each with "
        "an error",
        flush=True,
    )
    again = await asyncio.gather(*(_ask(server, bodies[i]) for i in ended))
    for i, answer in zip(ended, again, strict=True):
        answers[i] = answer
    return answers


def _under_way(answer: Answer) -> bool:
    """Tokens are out, and more are to come."""
    return bool(answer.lines) and answer.lines[-1] != b"[DONE]"


async def _ask(
    server: Server, body: bytes, leave_after: int | None = None, answer: Answer | None = None
) -> Answer:
    return await ask(server.port, "/v1/completions", body, leave_after, answer)


async def _scene(
    scene: Any, server: Server, given: argparse.Namespace, alone: dict[str, list[int]]
) -> dict[str, Any]:
    print(scene.__name__, flush=True)
    prompts = [list(alone)[i % DISTINCT] for i in range(given.streams)]
    bodies = [_body(prompt, given.tokens) for prompt in prompts]
    before = _sizes(server)
    counted = await metrics(server.port)
    answers = await scene(server, bodies)
    whole = [(p, a) for p, a in zip(prompts, answers, strict=True) if a.whole]
    left = len(answers) - len(whole)
    assert left == (-(-given.streams // 10) if scene is one_in_ten_leaves else 0), left
    for prompt, answer in whole:
        assert answer.token_ids == alone[prompt], "a stream differs from the same request alone"
    after = await _settled(server)
    return {
        "streams": len(answers),
        "whole_and_equal": len(whole),
        "left": left,
        "longest_before_the_head_s": max(a.head_after for _, a in whole),
        "longest_without_a_sign_of_life_s": max(a.longest_unheard for _, a in whole),
        "longest_silence_between_tokens_s": max(a.longest_silence for _, a in whole),
        "tokens": after["generation_tokens_total"] - counted["generation_tokens_total"],
        "preemptions": after["num_preemptions_total"],
        "aborted": after["request_success_total abort"],
        "restarts": after["engine_restarts_total"],
        "sizes_before": before,
        "sizes_after": _sizes(server),
    }


async def _settled(server: Server) -> dict[str, float]:
    """The metrics when nothing runs any more; that it comes to that is what is tested."""
    for _ in range(600):
        found = await metrics(server.port)
        busy = found["num_requests_running"] + found["num_requests_waiting"]
        if found["engine_up"] and not busy and not found["kv_cache_pages owned"]:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"something is left: {found}")


def _sizes(server: Server) -> dict[str, dict[str, int]]:
    processes = {"http": server.process.pid, "engine": server.engine()}
    return {
        name: {"own_memory": resident_bytes(pid), "descriptors": descriptors(pid)}
        for name, pid in processes.items()
    }


def _body(prompt: str, tokens: int) -> bytes:
    return json.dumps(
        {
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
    ).encode()


if __name__ == "__main__":
    main()
